# SPDX-License-Identifier: MIT
# fuzzed.py TARGET LOG [given]: says in a line what a run of libFuzzer (-print_final_stats=1) has tried: inputs, how many of them it
# began with, edges of the program's graph that they covered, and inputs that covered new ones. Fails if it did
# nothing but read what it began with, or if nothing that it made was new; unless it was asked to try what is `given` only.
import re
import sys

target, log = sys.argv[1], open(sys.argv[2], encoding="utf-8", errors="replace").read()
try:
    begun = int(re.search(r"^#(\d+)\s+INITED", log, re.M)[1])
    covered = [int(n) for n in re.findall(r" cov: (\d+) ", log[log.index("INITED"):])]
    tried = int(re.search(r"^stat::number_of_executed_units:\s+(\d+)", log, re.M)[1])
    new = int(re.search(r"^stat::new_units_added:\s+(\d+)", log, re.M)[1])
    rate = int(re.search(r"^stat::average_exec_per_sec:\s+(\d+)", log, re.M)[1])
except (TypeError, ValueError):
    sys.exit(f"  {target}: no statistics in {sys.argv[2]}")
print(f"  {target}: {tried} inputs ({rate}/s), {begun} to begin with, {new} new; {covered[-1]} edges, {covered[0]} to begin with")
if sys.argv[3:] != ["given"] and (tried <= begun or new == 0):
    sys.exit(f"  {target}: nothing that was tried is new: it does not fuzz")

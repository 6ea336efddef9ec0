# SPDX-License-Identifier: MIT
# What a program does, from `pipec --emit=json` on standard input: everything but names, phases and
# places in the source, one line for each instruction.
import json
import sys

program = json.load(sys.stdin)
for key in ("schedule", "params", "hash", "files", "critical_path"):
    del program[key]
for rank in program.pop("rank"):
    for instr in rank.pop("instr"):
        del instr["at"], instr["phase"]
        print(instr)
    print(rank)
print(program)

# SPDX-License-Identifier: MIT
"""Receives that are advanced or deferred: only with a proof.

usage: receives.py PIPEC STDLIB DIRECTORY

What the compiler advances: with the lowering `global` a RECV waits for its slot, not for the ops above its reader. Slots
and waits are read from the JSON form.

What a list advances or defers: of small pipelines whose transfers are in groups at their ops, and which complete, each
RECV in turn is put at every other place of its rank. What is proved must be what the machine of by_hand.py carries
out. What is refused must name that RECV: one below the op that reads it, one that another tensor meets, one in a circle.
"""
import collections
import json
import os
import re
import subprocess
import sys

import by_hand
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import clocks

OP = re.compile(r"(\d+)([FB])(\d+)$")


def advanced(pipec, path, *sizes):
    """How many RECVs may begin before the op right above their reader has ended, and how many there are."""
    got = subprocess.run([pipec, "--verify", "--emit=json", *sizes, path], check=True,
                         capture_output=True, text=True)
    early = every = 0
    for rank in json.loads(got.stdout)["rank"]:
        reads, busy, n = {}, {}, 0  # slot: when it is read; position of the op that has read it last
        known = clocks.Clocks(rank["instr"], clocks.waits_of(rank)).known
        for i in rank["instr"]:
            if "peer" not in i:
                reads.setdefault(i.get("in"), []).append(n)
                n += 1
        for i, over in zip(rank["instr"], known):
            if "RECV" not in i["op"]:
                continue
            every += 1
            slot, reader = i["out"], reads[i["out"]].pop(0)
            wait = over.get(clocks.COMPUTE, 0)
            if wait < busy.get(slot, 0) or wait > reader:
                sys.exit(f"{path}: {i['op']} waits for {wait} ops, its slot is free after {busy.get(slot, 0)}")
            busy[slot] = reader + 1
            early += wait < reader
    return early, every


def lists_of(pipec, path, stages, mbs):
    """The orders of a chain with a stage on each rank, and its transfers in groups."""
    rows = subprocess.run([pipec, "--emit=csv", f"-DP={stages}", f"-DM={mbs}", path], check=True, capture_output=True,
                          text=True).stdout.split()
    place, lists = list(range(stages)), []
    for row in rows:
        items = []
        for word in row.split(","):
            found = OP.match(word)
            if not found:
                continue
            op = (found[2], int(found[1]), int(found[3]))
            recv, send = by_hand.ends(op, stages, place)
            if recv and items and items[-1][0] == "move":
                items[-1][1].append(recv)
            elif recv:
                items.append(("move", [recv]))
            items.append(("op", op))
            if send:
                items.append(("move", [send]))
        lists.append(items)
    return lists


def variants(lists):
    """(rank, its RECV, its lists with it at another place, whether it is above its reader)."""
    for r, items in enumerate(lists):
        for i, item in enumerate(items):
            for x in item[1] if item[0] == "move" else ():
                if x[0] != "recv":
                    continue
                left = [y for y in item[1] if y is not x]
                rest = items[:i] + ([("move", left)] if left else []) + items[i + 1:]
                reader = rest.index(("op", x[3]))
                for at in range(len(rest) + 1):
                    yield r, x, lists[:r] + [rest[:at] + [("move", [x])] + rest[at:]] + lists[r + 1:], at <= reader


def main():
    pipec, stdlib, where = sys.argv[1:]
    os.makedirs(where)
    total = collections.Counter()
    for name in ("1f1b", "gpipe"):
        path = f"{stdlib}/{name}.pipe"
        early, every = advanced(pipec, path, "-DP=4", "-DM=8")
        total["advanced"] += early
        total["RECVs"] += every
    seen = collections.Counter()
    for name, stages, mbs in (("1f1b", 2, 2), ("1f1b", 3, 2), ("gpipe", 2, 3), ("gpipe", 3, 2)):
        lists = lists_of(pipec, f"{stdlib}/{name}.pipe", stages, mbs)
        assert by_hand.carry_out(lists) == "completes"
        for n, (r, recv, moved, above) in enumerate(variants(lists)):
            path = os.path.join(where, f"{name}_{stages}_{n}.csv")
            with open(path, "w") as f:
                f.write(by_hand.text(moved))
            got = subprocess.run([pipec, "--check", "--verify", path], capture_output=True, text=True)
            found = re.search(r"error: .*\[([a-z-]+)\]", got.stderr)
            says = "completes" if got.returncode == 0 else found[1] if found else got.stderr
            want = by_hand.carry_out(moved) if above else "transfer"
            text = f"{recv[3][1]}RECV_{recv[3][0]}{recv[3][2]}"
            if says != want or (says != "completes" and text not in got.stderr):
                sys.exit(f"{path}, {text}: {says}, and not {want}\n{got.stderr}")
            seen[says] += 1
    print(f"global: {total['advanced']} of {total['RECVs']} advanced")
    print(", ".join(f"{k} {seen[k]}" for k in ("completes", "deadlock", "matching", "transfer")))


main()

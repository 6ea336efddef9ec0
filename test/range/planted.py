# SPDX-License-Identifier: MIT
"""Plants a mistake at one random M of 1..TOP and asks for the range.

usage: planted.py PIPEC SCRATCH SEED ROUNDS TOP

Each round plants each kind of mistake at an M of its own. `pipec --check -D M=1..TOP` must refuse, name this M, and print the
messages that the compile of this M alone prints; the values beside it must be proved.
"""
import os
import random
import subprocess
import sys

pipec, scratch, seed, rounds, top = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
rng = random.Random(seed)
os.makedirs(scratch)

# What stands in the order of rank 0 or in the schedule when M is the chosen one; @ is that M.
KINDS = {
    "missing": ("do m in 0..M { if M != @ || m != M/2 { F(m) } }  do m in 0..M { B(m) } U", ""),
    "twice": ("steady m { F(m) B(m - 1) } if M == @ { F(0) } U", ""),
    "late": ("do M { F } do M { B } if M == @ { W(0) } U", ""),
    "deadlock": ("if M == @ { do m in 0..M { F(m) B(m) } } else { steady m { F(m) B(m - 1) } } U", ""),
    "check": ("steady m { F(m) B(m - 1) } U", "check M != @"),
    "limit": ("steady m { F(m) B(m - (M == @ ? 2 : 1)) } U", "limit inflight(r) <= 2 for r in 0..1"),
    "bytes": ("steady m { F(m) B(m - 1) } U", "bytes { act = M == @ ? 3000 : 2  boundary = 1  weight = 1 }"),
    "value": ("steady m { F(m) B(m - 1) } U", "time { F = 1 + 1/(M - @) }"),
}


def text(order, clause, at):
    # Rank 1 is right for every M; with `deadlock` it waits for F(1), which rank 0 runs after B(0).
    other = "if M == %d { F(1) B(1) F(0) B(0) do m in 2..M { F(m) B(m) } } else { steady m { F(m) B(m) } } U" % at \
        if order == KINDS["deadlock"][0] else "steady m { F(m) B(m) } U"
    return f"""schedule planted(M = 2) {{
  ranks 2
  pipe net stages 2 mbs M place s -> s
  order r in 0..1 {{ {order.replace("@", str(at))} }}
  order r in 1..2 {{ {other} }}
  {clause.replace("@", str(at))}
}}
"""


def check(path, values):
    return subprocess.run([pipec, "--check", "--memory-limit=4kB", f"-DM={values}", path]
                          if "bytes" in path else [pipec, "--check", f"-DM={values}", path],
                          capture_output=True, text=True)


found = planted = 0
for number in range(rounds):
    for kind, (order, clause) in KINDS.items():
        at = rng.randint(3, top)
        path = os.path.join(scratch, f"{kind}{number}.pipe")
        with open(path, "w") as f:
            f.write(text(order, clause, at))
        planted += 1
        said, alone = check(path, f"1..{top}"), check(path, at)
        notes = [line for line in said.stderr.splitlines(True) if "is the first refuted point" in line]
        rest = said.stderr.replace(notes[0], "") if notes else said.stderr
        sides = [check(path, f"{at - 2}..{at - 1}"), check(path, f"{at + 1}..{at + 2}")]
        if said.returncode == 1 and not said.stdout and f"note: M = {at} is the first" in said.stderr and \
                rest == alone.stderr and alone.returncode == 1 and not any(s.returncode for s in sides):
            found += 1
            print(f"{kind}: named M = {at}")
        else:
            print(f"{path}: M = {at} is not named:\n{said.stdout}{said.stderr}alone:\n{alone.stderr}sides:",
                  [s.returncode for s in sides], *[s.stderr for s in sides])
print(f"{planted} mistakes planted, {found} found")
sys.exit(found != planted)

# SPDX-License-Identifier: MIT
# Verdicts of `pipec --check` against SPIN, which tries every interleaving of what promela.c writes.
#
#   spin.py PIPEC PROMELA STDLIB SCRATCH [SEED [PROGRAMS [bytes|tags]]]
#
# Programs are the compute orders of small schedules with their transfers put in by hand, a SEND right after
# its op and a RECV right before it, of which some are then moved, or orders of ../channels/by_hand.py, with groups of
# transfers and waits; each under a channel model at random. With `bytes` all are of the latter, with buffers in bytes
# that some messages do not fit into; with `tags` too, under tags and with messages or bytes. With tags each transfer is a
# process, so those orders are short. A verdict is complete (SPIN finds nothing), deadlock (an invalid end state) or mispaired (an assertion).
import collections
import concurrent.futures
import os
import random
import re
import subprocess
import sys

import by_hand

pipec, promela, stdlib, scratch = sys.argv[1:5]
seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
programs = int(sys.argv[6]) if len(sys.argv) > 6 else 200
in_bytes, tags = sys.argv[7:] == ["bytes"], sys.argv[7:] == ["tags"]
MOST_SENDS = 6  # with tags and buffers
SMALL = [("1f1b", 2, 2), ("1f1b", 3, 2), ("1f1b", 3, 3), ("gpipe", 2, 3), ("gpipe", 3, 2), ("zb_h1", 2, 3),
         ("interleaved", 2, 2), ("zb_v", 2, 2), ("v_half", 2, 2)]
OP = re.compile(r"(\d+)([A-Z]+)(\d+)$")


def orders():
    """The compute orders, as rows of ops; and the rank of each stage."""
    out = []
    for name, ranks, mbs in SMALL:
        text = subprocess.run([pipec, f"{stdlib}/{name}.pipe", "--emit=csv", f"-DP={ranks}", f"-DM={mbs}"],
                              check=True, capture_output=True, text=True).stdout
        rows = [[c for c in line.split(",") if c] for line in text.splitlines()]
        out.append((rows, {int(OP.match(c)[1]): r for r, row in enumerate(rows) for c in row}))
    return out


def with_transfers(rows, rank_of):
    out = []
    for r, row in enumerate(rows):
        lines = []
        for op in row:
            stage, kind, mb = OP.match(op).groups()
            stage, step = int(stage), 1 if kind == "F" else -1
            before, after, letter = rank_of.get(stage - step), rank_of.get(stage + step), "F" if kind == "F" else "B"
            if kind != "W" and before is not None and before != r:
                lines.append(f"{stage}RECV_{letter}{mb}")
            lines.append(op)
            if kind != "W" and after is not None and after != r:
                lines.append(f"{stage}SEND_{letter}{mb}")
        out.append(lines)
    return out


def moved(rows, rng):
    """Some SENDs later, some RECVs earlier or later where the op that reads them allows it."""
    for _ in range(rng.choice((0, 0, 1, 2, 4))):
        row = rng.choice(rows)
        at = [i for i, c in enumerate(row) if "_" in c]
        if not at:
            continue
        i = rng.choice(at)
        reader = re.sub(r"RECV_F", "F", re.sub(r"RECV_B", "B", row[i]))
        op = row.pop(i)
        if "SEND" in op:
            row.insert(rng.randint(i, len(row)), op)
        else:
            last = next((k for k, c in enumerate(row) if c in (reader, reader.replace("B", "I"))), i)
            row.insert(rng.randint(0, last), op)
    return rows


def rows_text(rows):
    return "".join(",".join(row) + "\n" for row in rows)


def verdict_of_pipec(args):
    got = subprocess.run([pipec, "--check", *args], capture_output=True, text=True)
    if got.returncode == 0:
        return "complete"
    m = re.search(r"\[(deadlock|matching)\]", got.stderr)
    if not m:
        sys.exit(f"{args}: {got.stderr}")
    return {"deadlock": "deadlock", "matching": "mispaired"}[m[1]]


def verdict_of_spin(args, folder):
    os.makedirs(folder)
    got = subprocess.run([promela, *args], cwd=folder, capture_output=True, text=True)
    with open(f"{folder}/m.pml", "w") as f:
        f.write(got.stdout)
    flags = re.search(r"-DVECTORSZ=\d+", got.stdout)[0]
    for command in (["spin", "-a", "m.pml"], ["cc", "-O0", "-w", "-DSAFETY", flags, "pan.c", "-o", "pan"]):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    text = subprocess.run(["./pan", "-m1000000", "-w18"], cwd=folder, capture_output=True, text=True).stdout
    found = re.search(r"pan:1: (invalid end state|assertion violated)", text)
    if not found and not re.search(r"errors: 0$", text, re.M):
        sys.exit(f"{args}: {text}")
    says = {None: "complete", "invalid end state": "deadlock", "assertion violated": "mispaired"}
    return says[found and found[1]], got.returncode == 0


def judge(case):
    number, source, options = case
    path = os.path.join(os.path.abspath(scratch), f"{number}.csv")
    with open(path, "w") as f:
        f.write(source)
    ours = verdict_of_pipec([path, *options])
    spin, written = verdict_of_spin([path, *options], path + ".spin")
    if ours != spin or written != (ours == "complete"):
        return f"seed {seed}, {path} {' '.join(options)}: pipec says {ours}, SPIN {spin}"
    return ours


def grouped(rng):
    """Lists with transfers by hand, alone and in groups, and how many stages they have."""
    ranks, mbs = rng.randint(2, 3), rng.randint(1, 2)
    stages = 2 * ranks if rng.random() < 0.3 else ranks
    place = [s if s < ranks else 2 * ranks - 1 - s for s in range(stages)]
    order = by_hand.ops_in_some_order(rng, stages, mbs, place)
    lists = [by_hand.with_transfers(rng, order[r], stages, place) for r in range(ranks)]
    return by_hand.text(lists), stages


def sized(rng, number):
    """The same with the profile in which its messages have bytes."""
    text, stages = grouped(rng)
    return text, by_hand.profile(os.path.join(os.path.abspath(scratch), str(number)), stages, rng.randint(1, 3))


os.makedirs(scratch)
rng = random.Random(seed)
known, cases = orders(), []
for i in range(programs):
    if tags:
        source, profile = sized(rng, i)
        while source.count("SEND") > MOST_SENDS:
            source, profile = sized(rng, i)
        cases.append((i, source, [profile, "--channels=tagged", f"--sends=buffered:{rng.randint(1, 3)}{rng.choice(('', 'B'))}"]))
        continue
    if in_bytes:
        source, profile = sized(rng, i)
        cases.append((i, source, [profile, f"--channels={rng.choice(('rank', 'pair', 'edge'))}", f"--sends=buffered:{rng.randint(1, 5)}B"]))
        continue
    rows, rank_of = rng.choice(known)
    options = [f"--channels={rng.choice(('rank', 'pair', 'edge', 'tagged'))}"]
    if rng.random() < 0.4 and options != ["--channels=tagged"]:
        options.append(f"--sends=buffered:{rng.randint(1, 3)}")
    cases.append((i, grouped(rng)[0] if i % 3 == 2 else rows_text(moved(with_transfers(rows, rank_of), rng)), options))
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    found = collections.Counter(pool.map(judge, cases))
for wrong in [v for v in found if v.startswith("seed")]:
    print(wrong)
if any(v.startswith("seed") for v in found):
    sys.exit(1)
print(", ".join(f"{found[v]} {v}" for v in ("complete", "deadlock", "mispaired")) + ": SPIN agrees")

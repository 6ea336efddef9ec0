# SPDX-License-Identifier: MIT
# Limits of random orders, in JSON and in the dump, and what the verifier says of them.
#
#   limit_random.py PIPEC SCRATCH [SEED [PROGRAMS]]
#
# Orders have chunks, split and recomputed backwards, slices and copies to host memory; a limit is a random sum of
# counts of a rank or of its chunks. One that is far away says what its peak is, which --verify counts by slots and not
# by ops; it holds with that bound and not with one less. And plays of the program in which copies run
# when they like, where the waits allow it, never come to more.
import json
import os
import random
import re
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "oracle"))
import clocks

pipec, scratch = sys.argv[1:3]
seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(10**6)
programs = int(sys.argv[4]) if len(sys.argv) > 4 else 60
rng = random.Random(seed)
FAR = 10**6


def wrong(what, path):
    sys.exit(f"seed {seed}, {path}: {what}")


def run(*args):
    return subprocess.run([pipec, "--verify", *args], capture_output=True, text=True, cwd=scratch)


def order(chunks, split):
    """Forwards of all chunks, then backwards, of some microbatches after each other."""
    down = "W[%d](m)" if split else ""
    back = "I[%d](m)" if split else "B[%d](m)"
    fwd = " ".join("do m in a..b { F[%d](m) }" % c for c in range(chunks))
    bwd = " ".join("do m in a..b { %s }" % (back % c) for c in reversed(range(chunks)))
    if split:
        bwd += " " + " ".join("do m in a..b { %s }" % (down % c) for c in range(chunks))
    return fwd, bwd


def program():
    ranks, chunks, mbs = rng.randint(1, 2), rng.randint(1, 3), rng.choice((2, 4, 4, 6))
    split, slices = rng.random() < 0.5, rng.choice((1, 1, 1, 2))
    half = mbs // 2
    fwd, bwd = order(chunks, split)
    a, b = ("0", str(half)), (str(half), str(mbs))
    part = lambda text, ends: text.replace("a..b", "..".join(ends))
    if rng.random() < 0.5:
        body = part(fwd, ("0", str(mbs))) + " " + part(bwd, ("0", str(mbs)))
    else:
        body = " ".join((part(fwd, a), part(fwd, b), part(bwd, a), part(bwd, b)))
    if slices > 1:
        body = " ".join("do %d { F[%d] }" % (mbs * slices, c) for c in range(chunks)) + " " + " ".join(
            "do %d { B[%d] }" % (mbs * slices, c) for c in reversed(range(chunks)))
    sizes = rng.choice(("", "bytes { act = 64 }", "bytes { act = 100 + 20*(s % 3) }", "bytes { act = 1000*(s + 1) gout = 64 }"))
    clauses = [f"ranks {ranks}", f"pipe net stages {ranks * chunks} mbs {mbs} {'slices %d ' % slices if slices > 1 else ''}"
               f"place s -> s % {ranks}", "time { F = 2 B = 4 OFF = %d LOAD = %d }" % (rng.randint(1, 3), rng.randint(1, 3)),
               sizes.replace("bytes {", "bytes s {") if "s" in sizes[5:] else sizes]
    away = rng.random() < 0.6
    if away:
        clauses.append(f"offload s, m when (s + m) % {rng.randint(1, 3)} == 0")
    if rng.random() < 0.4:
        clauses.append(f"recompute s, m when m % {rng.randint(2, 3)} == {0 if not away else 1}")
    clauses.append(f"order r {{ {body} U }}")
    rows = []
    for r in range(ranks):
        for _ in range(rng.randint(0, 3)):
            terms = []
            for _ in range(rng.randint(1, 4)):
                chunk = f", {rng.randrange(chunks)}" if rng.random() < 0.5 else ""
                terms.append(f"{rng.choice((-2, -1, 1, 1, 2, 3))}*{rng.choice(('inflight', 'inflight', 'held', 'kept', 'host'))}({r}{chunk})")
            rows.append((r, " + ".join(terms)))
    return clauses, rows


def text(clauses, rows, bounds, sign):
    body = "\n".join("  " + c for c in clauses)
    limits = "\n".join(f"  limit {t} {sign} {b}" for (_, t), b in zip(rows, bounds))
    path = os.path.join(scratch, "t.pipe")
    with open(path, "w") as f:
        f.write(f"schedule t() {{\n{body}\n{limits}\n}}\n")
    return path


def limits_of(whole):
    return [limit for rank in whole["rank"] for limit in rank.get("limits", ())]


COUNTS = ("inflight", "held", "kept", "host")


def play(rank, chunk_of):
    """The sum of each limit of the rank, at its most in one play."""
    ops, copies = [], []
    known = clocks.Clocks(rank["instr"], clocks.waits_of(rank)).known
    for i, over in zip(rank["instr"], known):
        i["copied"], i["computed"] = over.get(clocks.COPY, 0), over.get(clocks.COMPUTE, 0)
        kind = re.sub(r"[\d.]", "", i["op"])
        if kind in ("OFF", "LOAD"):
            copies.append((kind, i))
        elif kind in ("F", "B", "I", "W", "R", "U"):
            ops.append((kind, i))
    again = {(i["stage"], i["mb"]) for kind, i in ops if kind == "R"}
    now = {c: [0] * len(chunk_of) for c in COUNTS}
    most = [-FAR] * len(rank["limits"])

    def step(stage, **change):
        for count, by in change.items():
            now[count][chunk_of[stage]] += by
        for k, limit in enumerate(rank["limits"]):
            most[k] = max(most[k], sum(w * now[c][j] for c in COUNTS for j, w in enumerate(limit.get(c, ()))))

    done = begun = over = 0
    eager = rng.random()  # how early copies are
    while done < len(ops):
        if rng.random() < eager or over < ops[done][1]["copied"]:
            if begun > over:
                kind, i = copies[over]
                over += 1
                step(i["stage"], **({"inflight": -1} if kind == "OFF" else {"host": -1}))
                continue
            if begun < len(copies) and copies[begun][1]["computed"] <= done:
                kind, i = copies[begun]
                begun += 1
                step(i["stage"], **({"inflight": 1} if kind == "LOAD" else {"host": 1}))
                continue
        kind, i = ops[done]
        if over < i["copied"]:
            continue
        unit = (i["stage"], i["mb"]) if kind != "U" else None
        takes = {"F": {"inflight": 1, "kept": int(unit in again)}, "I": {"held": 1}, "R": {"inflight": 1}}
        gives = {"F": {"inflight": -int(unit in again)}, "B": {"inflight": -1}, "W": {"inflight": -1, "held": -1}, "R": {"kept": -1}}
        step(i["stage"], **takes.get(kind, {}))
        done += 1
        step(i["stage"], **gives.get(kind, {}))
    return most


os.makedirs(scratch, exist_ok=True)
done = tight = copies = plays = 0
while done < programs:
    clauses, rows = program()
    path = text(clauses, rows, [FAR] * len(rows), "<=")
    got = run("--emit=json", path, "-o", "t.json")
    if got.returncode not in (0, 1) or "internal" in got.stderr:
        wrong(got.stderr, path)
    if got.returncode == 1:  # such an order does not exist; that it is refused is not what is tested
        if not re.search(r"\[(offload|order|dependence|recompute|no-recompute|clause|side)\]", got.stderr):
            wrong(got.stderr, path)
        continue
    done += 1
    with open(os.path.join(scratch, "t.json")) as f:
        whole = json.load(f)
    found = limits_of(whole)
    if len(found) != len(rows):
        wrong(f"{len(found)} limits in JSON of {len(rows)}", path)
    peaks = [limit["peak"] for limit in found]
    for rank in whole["rank"] if " slices " not in " ".join(clauses) else ():
        ranked = rank.get("limits", ())
        chunk_of = {stage: k for k, stage in enumerate(sorted({i["stage"] for i in rank["instr"] if "stage" in i}))}
        for _ in range(20 if ranked else 0):
            plays += 1
            for limit, sum_ in zip(ranked, play(rank, chunk_of)):
                most = limit["peak"]
                if sum_ > most:
                    wrong(f"a play comes to {sum_}, {limit}", path)
    copies += any("host" in limit for limit in found)
    rows.sort(key=lambda row: row[0])
    path = text(clauses, rows, peaks, "<=")
    dumped = run("--dump-after=lower", "--check", path)
    lines = [w for w in dumped.stdout.splitlines() if w.startswith("  limit ")]
    if dumped.returncode or len(lines) != len(rows):
        wrong("within its peak: " + dumped.stderr, path)
    for k, limit in enumerate(found):
        below = list(peaks)
        below[k] -= 1
        for sign, bounds in (("<=", below), ("<", [b + (i != k) for i, b in enumerate(peaks)])):
            got = run("--check", text(clauses, rows, bounds, sign))
            if got.returncode != 1 or "limit not kept" not in got.stderr or "[over-limit]" not in got.stderr:
                wrong(f"limit {k} of {sign} {bounds}: {got.stderr}", path)
        tight += 1
print(f"seed {seed}: {done} programs, {tight} limits hold, none with one less; {copies} count places on the host; {plays} plays")

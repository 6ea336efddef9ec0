# SPDX-License-Identifier: MIT
# Schedules with side ops and transfers by hand, drawn at random: `beside.py PIPEC COUNT [SEED]`. What pipec accepts of
# them is written as JSON, read back and written again, and both must say the same of every instruction. Prints the
# seed, and of a draw that differs the text.
import json
import random
import subprocess
import sys

pipec, count = sys.argv[1], int(sys.argv[2])
seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(1 << 30)
print("seed", seed)
rng = random.Random(seed)

HEAD = {
    "chain": "pipe net stages P mbs M place s -> s",
    "chunks": "pipe net stages 2*P mbs M place s -> s < P ? s : 2*P-1-s",
    "skips": "pipe net stages P mbs M place s -> s  edge 0 -> P-1",
    "tied": "pipe net stages P mbs M place s -> s  tie 0, P-1",
    "both": "pipe a stages P mbs M place s -> s  pipe b stages P mbs M place s -> P-1-s replica of a",
    "slices": "pipe net stages P mbs M slices 2 place s -> s",
    "dealt": "pipe net stages P-1 mbs M place s, m -> s == 0 ? m % 2 : s + 1",
}


def order(kind):
    """The order of all ranks, and the ops that it has, of F B I W R U."""
    if kind == "dealt":
        return ("order r in 0..2 { do (M+1-r)/2 { F }  do (M+1-r)/2 { B }  U }"
                "  order r in 2..P { do M { F }  do M { B } U }"), "FBU"
    if kind == "chunks":
        return "order r { do M { F[0] }  do M { F[1] }  do M { B[1] }  do M { B[0] }  U }", "FBU"
    if kind == "both":
        return "order r { do M { a.F  b.F }  do M { b.B  a.B }  U }", "FBU"
    if kind == "slices":
        return "order r { do 2*M { F }  do 2*M { B }  U }", "FBU"
    return rng.choice([
        ("order r { steady m { F(m)  B(m - (P-1-r)) }  U }", "FBU"),
        ("order r { steady m { F(m)  I(m - (P-1-r))  W(m - (P-1-r)) }  U }", "FBIWU"),
        ("order r { do M { F }  do m in M-1..-1 step -1 { R(m)  B(m) }  U }", "FBRU"),
        ("order r { steady m { F(m)  B(m - (P-1-r))  U(m - (P-1-r)) } }  weights { B reads F }", "FBU"),
        ("order r { steady m { overlap { F(m)  B(m - 2*(P-1-r) - 1) } }  U }", "FBU"),
    ])


def by_hand(kind):
    """1F1B with its transfers, some of them waited for or in one group."""
    wait = [rng.choice(["", "", "wait"]) for _ in range(4)]
    group = rng.random() < 0.8  # without, ranks wait for each other, if more than two send at once
    sums = "TIE" if kind == "tied" else ""
    pair = "group { %s %s }" if group else "%s %s"
    if kind == "skips":  # stage 0 also feeds the last one
        return ("order r { do i in 0..M { if r > 0 { recv F(i) } " + wait[0] + " F(i) if r < P-1 { send F(i) } }"
                " do i in 0..M { if r < P-1 { recv B(i) } " + wait[1] + " B(i) if r > 0 { send B(i) } } U }"), "FBU"
    return ("order r { let w = min(M, P-1-r)  if r > 0 { recv F(0) }"
            " do i in 0..M + w { %s if i < M { F(i) } " % wait[0] +
            pair % ("if i < M && r < P-1 { send F(i) }", "if i >= w && r < P-1 { recv B(i - w) }") +
            " %s if i >= w { B(i - w) } " % wait[1] +
            pair % ("if i >= w && r > 0 { send B(i - w) }", "if i + 1 < M && r > 0 { recv F(i + 1) }") +
            " } %s %s U }" % (wait[2], sums)), "FBU"


def anchor(ops):
    return rng.choice(["", "", "first ", "last "]) + rng.choice(ops)


def sides(ops):
    text, takers = [], []
    for name in rng.sample(["GATHER", "CLIP", "NORM2", "SPILL_X", "Q"], rng.randrange(1, 5)):
        stream = rng.choice(["compute", "comm", "copy"])
        where = rng.choice(["after", "before", "latest before", "both", "latest both"])
        if "both" in where:
            a = "after %s %s %s " % (anchor("F"), where.replace("both", "before"), anchor(ops[1:]))
        else:
            a = "%s %s " % (where, anchor(ops))
        by_mb = "U" not in a and rng.random() < 0.5
        s = "side %s(s%s) on %s %s" % (name, ", m" if by_mb else "", stream, a)
        memory = rng.random() < 0.5
        if takers and not memory and rng.random() < 0.7:
            s += "gives %s " % rng.choice(takers)
        if rng.random() < 0.4:
            s += "when %s " % rng.choice(["s == 0", "s > 0", "s % 2 == 0"] + by_mb * ["m % 2 == 0", "m > 0"])
        s += "{ cost = %s  memory = %s }" % (rng.choice(["0", "1", "3", "2 + s"]),
                                             rng.choice(["64", "100", "64 + 64*s"]) if memory else "0")
        if memory:
            takers.append(name)
        text.append(s)
    return "  ".join(text)


def schedule():
    kind = rng.choice(sorted(HEAD))
    manual = kind in ("chain", "tied", "skips") and rng.random() < 0.4
    ord_, ops = by_hand(kind) if manual else order(kind)
    clauses = [HEAD[kind], ord_]
    clauses.append("time { F = %d  B = %d  OFF = 1  LOAD = 1 }" % (rng.randrange(1, 4), rng.randrange(1, 6)))
    if rng.random() < 0.6:
        clauses.append(sides(ops))
    if not manual:
        clauses.append(rng.choice(["", "transfers inline", "transfers inline grouped"]))
        if "R(m)" not in ord_ and rng.random() < 0.3:
            clauses.append("offload")
        if rng.random() < 0.3:
            clauses.append("exclusive r -> r / 2")
    if rng.random() < 0.5:
        clauses.append("bytes { act = 100  boundary = 8  weight = 64 }")
    return "schedule drawn(P = %d, M = %d) { ranks P\n%s\n}\n" % (
        4 if kind == "both" else rng.randrange(3, 5), rng.randrange(2, 6), "\n".join(clauses))


def run(*args):
    return subprocess.run([pipec, *args], capture_output=True)


def what(form):
    p = json.loads(form)
    for key in ("hash", "files", "critical_path"):
        del p[key]
    for r in p["rank"]:
        for i in r["instr"]:
            del i["at"]
    return p


kept = dict.fromkeys(("side", "order", "before", "gives", "wait_all", "manual"), 0)
taken = 0
for n in range(count):
    text = schedule()
    with open("drawn.pipe", "w") as f:
        f.write(text)
    first = run("--verify", "--emit=json", "drawn.pipe")
    if first.returncode == 1:
        continue  # refused: no such op, a buffer that nobody has taken
    with open("drawn.json", "wb") as f:
        f.write(first.stdout)
    again = run("--verify", "drawn.json", "--emit=json")
    if first.returncode or again.returncode or what(first.stdout) != what(again.stdout):
        sys.exit("draw %d\n%s%s%s" % (n, text, first.stderr.decode(), again.stderr.decode()))
    for key in kept:
        kept[key] += b',"%s":' % key.encode() in first.stdout.replace(b'{"before"', b"") or (
            key == "manual" and b'"lowering":"manual"' in first.stdout)
    taken += 1
print(taken, "of", count, "read back:", *("%d %s" % (v, k) for k, v in sorted(kept.items())))

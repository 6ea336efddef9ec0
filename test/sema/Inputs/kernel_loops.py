# SPDX-License-Identifier: MIT
# A kernel with loops in it is the kernel with their turns written out: random ones, some of them with a mistake, give
# the same lists with the same phases, or fail with the same diagnostic; and the same verdict for M = 1..16.
#
#   kernel_loops.py PIPEC SCRATCH SEED PROGRAMS
import collections
import os
import random
import re
import subprocess
import sys

pipec, scratch, seed, programs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
os.makedirs(scratch, exist_ok=True)


class Loop:
    def __init__(self, var, turns, text, body):
        self.var, self.turns, self.text, self.body = var, turns, text, body


def looped(body):
    return " ".join(b if isinstance(b, str) else f"{b.text} {{ {looped(b.body)} }}" for b in body)


def written_out(body, values=()):
    """Each turn is a block of its own, with the numbers in place of the names."""
    out = []
    for b in body:
        if isinstance(b, str):
            for name, value in values:
                b = re.sub(rf"\b{name}\b", f"({value})", b)
            out.append(b)
        else:
            out += [f"if 1 {{ {written_out(b.body, (*values, (b.var, turn)))} }}" for turn in b.turns]
    return " ".join(out)


def over(var, n):
    """All of 0..n-1, up or down."""
    if rng.random() < 0.5:
        return list(range(n)), f"do {var} in 0..{n}"
    return list(range(n - 1, -1, -1)), f"do {var} in {n} - 1..-1 step -1"


def kernel(chunks, r, ranks):
    """F of all chunks, then B, or I and W, or pieces of actions: lags that respect the data of a chain, most of the time."""
    far = rng.choice((1, ranks))
    lag = lambda c, extra=0: f"{far}*({chunks} - 1 - {c}) + {ranks - 1 - r + chunks + extra}"
    if rng.random() < 0.15:
        lag = lambda c, extra=0: f"{c}"
    turns, text = over("c", chunks)
    fl = f"c*{rng.choice((0, 0, 1))}"
    if rng.random() < 0.2:  # two loops, one in the other
        forward = Loop("a", [0, 1], "do a in 0..2", [
            Loop("c", turns, text, [f"if c % 2 == a {{ F[c](m - {fl}) }}"])])
    else:
        forward = Loop("c", turns, text, [f"F[c](m - {fl})"])
    turns, text = over("c", chunks)
    form = rng.randrange(4)
    if form == 0:
        back = [Loop("c", turns, text, [f"let l = {lag('c')}", "B[c](m - l)"])]
    elif form == 1:
        back = [Loop("c", turns, text, [f"I[c](m - ({lag('c')}))"]), Loop("c", turns, text, [f"W[c](m - ({lag('c', 2)}))"])]
    elif form == 2:
        l = lag("c", 1)
        back = ["overlap {", Loop("c", turns, text, [f"if c != 1 {{ B[c](m - ({l})) }}"]), "}",
                Loop("c", turns, text, [f"if c == 1 && m >= 0 {{ B[c](m - ({l})) }}"])]
    else:
        l = lag("c")
        back = [Loop("c", turns, text, [f"op_b(m - ({l}), c)" if rng.random() < 0.5 else f"B[c](m - ({l}))"])]
    if rng.random() < 0.3:
        turns, text = over("c", chunks)
        back.append(Loop("c", turns, text, [f"U[c](m - ({lag('c', 4)}))"]))
    return [forward, *back]


def program(name, orders, chunks, ranks, updated):
    text = [f"schedule s(M = {rng_m}) {{", f"ranks {ranks}",
            f"pipe net stages {ranks * chunks} mbs M place s -> s / {chunks}"]
    for r, body in enumerate(orders):
        u = "" if updated[r] else " U"
        text.append(f"order r in {r}..{r + 1} {{ op op_b(k, c) = B[c](k) clip steady m {{ {body} }}{u} }}")
    path = os.path.join(scratch, name)
    with open(path, "w") as f:
        f.write("\n".join(text + ["}", ""]))
    return path


def outcome(path):
    """Lists and phases or the name of the diagnostic, and the verdict for M = 1..16."""
    got = subprocess.run([pipec, "--dump-after=expand", path], capture_output=True, text=True)
    assert got.returncode in (0, 1), (path, got.returncode)
    if got.returncode:
        return "refused", re.findall(r"\[([a-z-]+)\]$", got.stderr, re.M)[0]
    checked = subprocess.run([pipec, "--check", "--verify", "-DM=1..16", path], capture_output=True, text=True)
    assert checked.returncode in (0, 1), (path, checked.returncode)
    verdict = re.findall(r"^(proved .*)$", checked.stdout, re.M)
    names = re.findall(r"\[([a-z-]+)\]$", checked.stderr, re.M)[:1]
    return "lists", got.stdout, verdict or names + re.findall(r"(M = [0-9]+) is the first refuted", checked.stderr)


found = collections.Counter()
for number in range(programs):
    ranks, chunks, rng_m = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 6)
    orders = [kernel(chunks, r, ranks) for r in range(ranks)]
    updated = [any(isinstance(b, Loop) and "U[c]" in looped([b]) for b in o) for o in orders]
    one = outcome(program(f"loops{number}.pipe", map(looped, orders), chunks, ranks, updated))
    two = outcome(program(f"flat{number}.pipe", map(written_out, orders), chunks, ranks, updated))
    if one != two:
        print(f"seed {seed}: {scratch}/loops{number}.pipe and flat{number}.pipe differ\n{one}\n{two}")
        sys.exit(1)
    found[one[0] if one[0] == "refused" or not one[2] else one[2][0].split(" ", 1)[0]] += 1
print(f"{programs} kernels with loops are what they are written out:", dict(sorted(found.items())))

# SPDX-License-Identifier: MIT
"""Random formulas, near where rounding decides, through `pipec --verify`: none may be found to differ from its text.
Usage: formulas_random.py PIPEC DIR N SEED (0: drawn). Prints the seed, and how many were programs at all."""
import os
import random
import subprocess
import sys

NUMBERS = "0 1 2 3 0.1 0.3 0.7 1.1 8 7 0.5 -1 P s delay behind m".split()
ARRAYS = {"as": "w v v2 q p", "applies": "w g v v2 q p", "then": "w old v q p", "rate": "lr k"}


def formula(depth, rng, leaf):
    """Of this depth at most, of random operations on what leaf() gives."""

    def sub():
        return formula(depth - 1, rng, leaf)

    if depth == 0 or rng.random() < 0.12:
        return leaf()
    kind = rng.randrange(18)
    if kind < 9:
        return f"({sub()} {rng.choice('***//++--')} {sub()})"
    if kind == 9:
        return f"{rng.choice(['min', 'max'])}({sub()}, {sub()}, {sub()})"
    if kind == 10:
        return f"{rng.choice(['abs', 'floor', 'sqrt', 'log', 'exp'])}({sub()})"
    if kind == 11:
        return f"{rng.choice(['exp', 'floor'])}({sub()} / {rng.choice(['0.1', '0.3', '1.1', '0.7', '30000000'])})"
    if kind == 12:
        return f"pow({sub()}, {rng.choice(['0', '1', '2', '-1', '0.5', sub()])})"
    if kind == 13:
        return f"({sub()} {rng.choice(['<', '>', '<=', '>=', '==', '!='])} {sub()} ? {sub()} : {sub()})"
    if kind == 14:
        return f"({sub()} {rng.choice(['&&', '||'])} {sub()})"
    if kind == 15:
        return f"sum(j, {rng.choice(['0', '-1'])}, {rng.choice(['3', 'P'])}, {sub()} * j + {sub()})"
    if kind == 16:
        return f"(({rng.choice('sP')} + 3) % {rng.choice('7P')})"
    return f"{rng.choice('-!')}({sub()})"


def program(rng):
    def line(word):
        arrays = ARRAYS[word].split()
        return formula(rng.choice([2, 3, 3, 4]), rng, lambda: rng.choice(rng.choice([NUMBERS, NUMBERS, ["lr", "k"], arrays, arrays])))

    order = rng.choice(["steady m { F(m) B(m - (P-1-r)) } U", "do M { F } do m in 0..M { B(m) U(m) }"])
    return f"""schedule s(P = 2, M = 4) {{
  ranks P
  pipe net stages P mbs M place s -> s
  order r {{ {order} }}
  weights s, m {{
    state q
    state p
    {rng.choice("FB")} reads newest as {line("as")}
    U applies {line("applies")}
    U rate {line("rate")}
    U then q = {line("then")}
    U then p = {line("then")}
  }}
}}
"""


def main():
    n, seed = int(sys.argv[3]), int(sys.argv[4]) or random.randrange(1, 1 << 31)
    print(f"seed {seed}")
    rng, good = random.Random(seed), 0
    path = os.path.join(sys.argv[2], "random.pipe")
    for _ in range(n):
        text = program(rng)
        with open(path, "w") as f:
            f.write(text)
        r = subprocess.run([sys.argv[1], "--verify", "--check", path], capture_output=True, text=True)
        if r.returncode not in (0, 1) or "internal error" in r.stderr:
            sys.exit(f"{r.stderr}\n{text}")
        good += r.returncode == 0
    print(f"{good} of {n} have a program")


if __name__ == "__main__":
    main()

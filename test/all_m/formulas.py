# SPDX-License-Identifier: MIT
"""Formulas for every value of a parameter: random ones, made to be large, small, and divided by what comes near 0. Of one that is
proved for every K from 1 on, none of the values of K up to 2^31 that are tried may be refused, and of M none that is small.
Usage: formulas.py PIPEC DIR N SEED (0: drawn). Prints the seed, and how many were proved, not decided, and refused somewhere."""
import os
import random
import re
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "check"))
from formulas_random import formula

HUGE, TINY = "1000000000000000000", "0.000000000000000001"
LARGE = ["1000000", "3000000000000000", HUGE, f"({HUGE} * {HUGE})", "0.001", TINY, f"({TINY} * {TINY})", "0.5", "7", "3"]
KS = [1, 2, 3, 5, 8, 63, 64, 65, 1000, 46341, 1 << 20, (1 << 31) - 1, 1 << 31]
MS = [1, 2, 3, 4, 5, 7, 9, 16, 30, 31, 64, 65, 130]


def program(rng):
    leaf = ["K", "K", "K", "K", "s", "P", "half"]
    word = rng.choice(["U rate ", "U rate ", "U applies g * ", "B reads newest as w / "])
    if rng.random() < 0.4:
        leaf += ["m", "M", "delay", "behind"] + ["n"] * word.startswith("U") + ["lr"] * (rng.random() < 0.5)
    order = rng.choice(
        [
            "steady m { F(m) B(m - (P-1-r)) } U",
            "do M { F } do M { B } U",
            "do M { F } do m in 0..M { B(m) U(m) }",
        ]
    )
    when = rng.choice(["", "", " when s > 0", " when m > 3", " when K > 60"])
    text = formula(rng.choice([2, 3, 3, 4]), rng, lambda: rng.choice(rng.choice([leaf, leaf, LARGE])))
    line = f"{word}{text}{when}"
    lines = f"{line}  B reads newest" if "B reads" in word else f"B reads newest  {line}"
    return f"""schedule s(P = 2, M = 6, K = 4) {{
  let half = K / 2
  ranks P
  pipe net stages P mbs M place s -> s
  order r {{ {order} }}
  weights s, m {{ {lines} }}
}}
"""


def pipec(*args):
    return subprocess.run([sys.argv[1], *args], capture_output=True, text=True)


def main():
    d, n, seed = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) or random.randrange(1, 1 << 31)
    print(f"seed {seed}")
    rng = random.Random(seed)
    path = os.path.join(d, "formula.pipe")
    count = {"proved": 0, "not decided": 0, "refused somewhere": 0}
    for _ in range(n):
        text = program(rng)
        with open(path, "w") as f:
            f.write(text)
        if pipec("--check", path).returncode != 0:
            continue
        for name, values in (("K", KS), ("M", MS)):
            all_of = pipec(f"--for-all={name}", path)
            proved = re.search(rf"^all {name} +proved complete", all_of.stdout, re.M) is not None
            if all_of.returncode < 0:
                sys.exit(f"crash\n{text}")
            wrong = []
            for v in values:
                r = pipec("--check", f"-D{name}={v}", path)
                if r.returncode != 0:
                    wrong.append((v, r.stderr))
                    break
            if proved and wrong:
                sys.exit(f"proved for every {name}, but {name} = {wrong[0][0]}:\n{wrong[0][1]}{text}")
            count["proved" if proved else "refused somewhere" if wrong else "not decided"] += 1
            if os.environ.get("SHOW") and not proved and not wrong:
                print(name, re.findall(r"as .*|rate.*|applies.*", text), re.findall("^all.*", all_of.stdout, re.M))
    print(", ".join(f"{v} {k}" for k, v in count.items()))


main()

# SPDX-License-Identifier: MIT
"""damaged.py SEED N TRACE COMMAND...: N times, COMMAND --with=TRACE damaged at random: a byte, a cut, a line twice, lines
exchanged, a number changed. The trace is read, or refused as a trace with its place; nothing else."""
import random
import re
import subprocess
import sys

seed, times, trace, *command = sys.argv[1:]
rng, text, said = random.Random(int(seed)), open(trace, "rb").read(), {0: 0, 1: 0}


def damage(text):
    at, to = sorted(rng.randrange(len(text)) for _ in "ab")
    lines = text.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    numbers = list(re.finditer(rb"\d+", text))
    kind = rng.randrange(6)
    if kind == 0:
        return text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
    if kind == 1:
        return text[:at]
    if kind == 2:
        return text[:at] + text[to:]
    if kind == 3:
        lines.insert(j, lines[i])
    if kind == 4:
        lines[i], lines[j] = lines[j], lines[i]
    if kind < 5:
        return b"\n".join(lines)
    m = rng.choice(numbers)
    return text[: m.start()] + rng.choice([b"0", b"-1", b"99", b"1e400", b"4294967296", b"null", b'"0"', b"[]"]) + text[m.end() :]


for n in range(int(times)):
    with open("damaged.json", "wb") as f:
        f.write(damage(text))
    run = subprocess.run(command + ["--with=damaged.json"], capture_output=True, text=True, errors="replace", check=False)
    place = re.match(r"damaged\.json:\d+:\d+: error: .*\[trace\]\n", run.stderr)
    if run.returncode not in said or bool(run.returncode) != bool(place):
        print(f"number {n}: status {run.returncode}: {run.stderr}")
        sys.exit(1)
    said[run.returncode] += 1
print(f"{said[0]} read, {said[1]} refused")

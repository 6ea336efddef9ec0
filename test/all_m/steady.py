# SPDX-License-Identifier: MIT
"""The time of the steady state that --for-all=M states, against how predicted makespans grow from one large M to another: of the
library, and of random kernels with sizes, bandwidths, shared links, copies and pipes of other counts.
Usage: steady.py PIPEC DIR STDLIB N SEED (0: drawn). Prints the seed, and how many have one, and how many say that they have none."""
import glob
import json
import os
import random
import re
import subprocess
import sys

UNIT = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
LARGE = (240, 720)


def pipec(*args):
    return subprocess.run([sys.argv[1], *args], capture_output=True, text=True)


def predicted(path, params, m):
    r = pipec(path, *params, f"-DM={m}", "--emit=json")
    if r.returncode != 0:
        sys.exit(f"{path} at M = {m}: {r.stderr}")
    j = json.loads(r.stdout)
    return j["ideal"], j["microbatches"]


def check(path, params, text=""):
    """stated, none, or "" where nothing is proved of kernels."""
    r = pipec(path, *params, "--for-all=M")
    if "all M     proved complete" not in r.stdout or " from " in re.search("^all M.*", r.stdout, re.M)[0]:
        return ""
    if re.search(r"^steady    not the same for every M", r.stdout, re.M):
        return "none"
    m = re.search(r"^steady    ([\d.]+)(?: (\w+))? for (?:each microbatch|(\d+) microbatches) on an idle network, ", r.stdout, re.M)
    if not m:
        sys.exit(f"{path}: no steady state is stated\n{r.stdout}{text}")
    time, per = float(m[1]) * UNIT.get(m[2], 1), int(m[3] or 1)
    (t0, n0), (t1, n1) = (predicted(path, params, v) for v in LARGE)
    want = (t1 - t0) * per / (n1 - n0)
    if abs(time - want) > 1e-6 * want + (0 if m[2] in (None, "ns") else UNIT[m[2]] * 0.0006):
        sys.exit(f"{path} {params}: {time} for {per} microbatches, but makespans grow by {want}\n{text}")
    return "stated"


def kernel(rng):
    p = rng.randint(1, 4)
    two = p % 2 == 0 and rng.random() < 0.5
    extra = rng.randint(0, 2)
    ops = []
    for s in range(p):
        back = p - 1 - s + extra * (s < p - 1)
        split = f"I(m - {back}) W(m - {back + rng.randint(0, 2)})" if rng.random() < 0.3 else f"B(m - {back})"
        both = f"a.F(m) b.F(m) a.B(m - {2 * p}) b.B(m - {2 * p})"
        ops.append(f"  order r in {s}..{s + 1} {{ steady m {{ {both if two else 'F(m) ' + split} }} U }}")
    count = rng.choice(["M", "M", "(M+5)/6*6", "(M+3)/4*4"])
    pipes = (
        f"  pipe a stages P mbs M place s -> s\n  pipe b stages P mbs {count} place s -> P-1-s replica of a"
        if two
        else f"  pipe net stages P mbs {rng.choice(['M', 'M', '2*M', '(M+1)/2*2'])} place s -> s"
    )
    time = [f"F = {rng.randint(1, 5)} + s % 2", f"B = {rng.randint(1, 7)}", f"reduce = {rng.randint(0, 9)}"]
    net = rng.choice(["", "send", "size", "size", "moves", "moves", "unused"])
    size = f"{rng.randint(0, 40)} + s"
    if net == "send":
        time.append(f"send = {rng.randint(0, 4)}")
    elif net:
        time += [f"latency = {rng.randint(0, 3)}", f"bandwidth = {rng.randint(5, 20)}"][: 1 if net == "unused" else 2]
        size = size if net == "size" else rng.choice(["M", "M % 7 * 10", "(M > 300 ? 10 : 30)"])
    more = "".join(
        rng.choice(["", "", line])
        for line in (
            "  exclusive x, y -> 0\n" if net in ("send", "size") and p > 1 else "",
            "  offload s, m when s == 0\n  time { OFF = 4 }\n" if not two else "",
            "  bytes { act = 100 + M }\n" if not net else "",
        )
    )
    bytes_ = f"  bytes s {{ boundary = {size} }}\n" if net in ("size", "moves", "unused") else ""
    order = "\n".join(ops)
    text = f"schedule s(M = {rng.randint(1, 9)}) {{\n  let P = {p}\n  ranks P\n{pipes}\n{order}\n  time s {{ {'  '.join(time)} }}\n{bytes_}{more}}}\n"
    return text, net == "moves"


def main():
    d, lib, n = sys.argv[2], sys.argv[3], int(sys.argv[4])
    seed = int(sys.argv[5]) or random.randrange(1, 1 << 31)
    print(f"seed {seed}")
    rng, count = random.Random(seed), {"stated": 0, "none": 0, "": 0}
    for _ in range(n):
        text, moves = kernel(rng)
        path = os.path.join(d, "kernel.pipe")
        with open(path, "w") as f:
            f.write(text)
        said = check(path, [], text)
        if said and moves != (said == "none"):
            sys.exit(f"what transfers take {'moves' if moves else 'stays'}, said: {said}\n{text}")
        count[said] += 1
        if os.environ.get("SHOW") and not said:
            print(text, pipec(path, "--for-all=M").stdout[:400], pipec(path, "--for-all=M").stderr[:400])
    print(f"random: {count['stated']} have a steady state, {count['none']} say why not")
    found = [os.path.basename(f) for f in sorted(glob.glob(os.path.join(lib, "*.pipe"))) if lib != "-" and check(f, ["-DP=4"]) == "stated"]
    print(f"library: {' '.join(found)}")


main()

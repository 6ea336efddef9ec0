# SPDX-License-Identifier: MIT
# losses.py WANT GOT LIMIT: "loss STEP HEX" lines of two runs agree, each within LIMIT of itself.
import sys


def losses(path):
    with open(path, encoding="utf-8") as f:
        return [float.fromhex(line.split()[2]) for line in f if line.startswith("loss ")]


want, got, limit = losses(sys.argv[1]), losses(sys.argv[2]), float(sys.argv[3])
worst = max((abs(a - b) / a for a, b in zip(want, got)), default=0)
print(f"{len(got)} losses, {worst:.1e} apart")
sys.exit(len(want) != len(got) or not got or not worst <= limit)

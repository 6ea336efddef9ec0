# SPDX-License-Identifier: MIT
# Limits in bytes: what compiles keeps them, and uses the room.
#
#   byte_limit.py PIPEC FOLDER SEED INSTANCES
import json
import os
import random
import subprocess
import sys

pipec, folder, seed, instances = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
print("seed %d" % seed)
path = os.path.join(folder, "t.pipe")


def compiled(text):
    open(path, "w").write(text)
    run = subprocess.run([pipec, "--emit=json", path], capture_output=True, text=True)
    return json.loads(run.stdout) if run.returncode == 0 else run.stderr


def rank_bytes(program, r):
    """Slots, weights, gradients and optimizer of a rank, each rounded up to 64 bytes."""
    up = lambda n: (n + 63) // 64 * 64
    rank = program["rank"][r]
    own = [s for s in program["stages"] if s["rank"] == r]
    slots = sum(q["count"] * up(q["bytes"]) for q in rank["pools"])
    return slots + sum(up(s["weight"]) + up(s["grad"]) + up(s["opt"]) for s in own) + max(up(s["work"]) for s in own)


kept = refused = shorter = 0
for number in range(instances):
    P, M = rng.randrange(2, 5), rng.randrange(4, 12)
    cases = lambda lo, hi: " : ".join("s == %d ? %d" % (s, rng.randrange(lo, hi)) for s in range(P)) + " : 0"
    body = """schedule t(P = %d, M = %d) {
  ranks P
  pipe net stages P mbs M place s -> s
  time s { F = %s  I = %s  W = %s  send = 3 }
  bytes s { act = %s  gout = 70  boundary = 64  weight = 100  opt = 50 }
  order r { steady m { F(m)  I(m - (P-1-r))  W(m - (P-1)) }  U }
""" % (P, M, cases(80, 140), cases(60, 120), cases(40, 110), cases(100, 4000))
    plain = compiled(body + "}\n")
    most = max(rank_bytes(plain, r) for r in range(P))
    last = None
    for share in (2.0, 1.4, 1.1, 1.0, 0.9):
        limit = int(most * share)
        made = compiled(body + "  tune tries 20 by makespan()\n  limit memory(r) <= %d for r in 0..P\n}\n" % limit)
        if isinstance(made, str):
            assert "limit not kept" in made and share < 1, (number, share, made)
            refused += 1
            continue
        assert all(rank_bytes(made, r) <= limit for r in range(P)), (number, share)
        assert made["makespan"] <= plain["makespan"], (number, share)
        kept += 1
        shorter += last is not None and last < made["makespan"]
        last = made["makespan"]
assert shorter or instances < 20
print("%d limits kept, %d refused, %d orders shortened by room" % (kept, refused, shorter))

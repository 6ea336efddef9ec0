# SPDX-License-Identifier: MIT
# Times by microbatch, slice and rank against a second machine (machine.py), which takes them from the formulas here: when
# each instruction starts, busy, span, the makespan and that on an idle network. Library schedules with random times.
# Prints its seed.
#
#   units.py PIPEC SEED SCRATCH [--break]
import random
import subprocess
import sys

import machine

pipec, seed, scratch = sys.argv[1:4]
wrong = "--break" in sys.argv
rng = random.Random(int(seed))
print("seed", seed)
KEYS = ("F", "B", "I", "W", "R", "OFF", "LOAD")
LIBRARY = [("gpipe", "gpipe"), ("1f1b", "onef1b"), ("interleaved", "interleaved"), ("zb_h1", "zb_h1"), ("zb_v", "zb_v"),
           ("dualpipev", "dualpipev"), ("gpipe", "gpipe")]


class Times:
    """A random time for each key: least + (a s + b m + c q + d r) % most; FB may be 0."""

    def __init__(t):
        t.of = {k: [rng.randint(0, 3)] + [rng.randint(0, 9) for _ in range(4)] + [rng.randint(1, 9)] for k in KEYS + ("FB",)}
        for k in rng.sample(KEYS, 3):  # not by rank, as most are not
            t.of[k][4] = 0
        t.fused = rng.random() < 0.5
        t.send = rng.randint(0, 3)

    def at(t, key, s, m, q, r):
        if key == "FB" and not t.fused:
            return 0
        n = t.of[key]
        return n[0] + (n[1] * s + n[2] * m + n[3] * q + n[4] * r) % n[5] + (key == "F" and wrong and m == 1)

    def text(t, slices):
        rows = " ".join("%s = %d + (%d*s + %d*m + %s%d*r) %% %d" % (k, n[0], n[1], n[2], "%d*q + " % n[3] if slices else "", n[4], n[5])
                        for k, n in t.of.items() if k != "FB" or t.fused)
        return "time s, m%s on r { %s }\n  time { send = %d }" % (", q" if slices else "", rows, t.send)


class Program(machine.Program):
    def price(p, key, c):
        stage = p.stages[c.stage]
        unit = c.mb - stage["mb0"] * p.slices
        return p.times.at(key, stage["model"], unit // p.slices, unit % p.slices if p.slices > 1 else 0, stage["rank"])

    def cost(p, c):
        return p.price(c.kind, c) if c.kind in KEYS else p.times.send if c.comm else 0

    def action_cost(p, ops, cost):
        if sorted(c.kind for c in ops) == ["B", "F"]:
            fused = p.price("FB", next(c for c in ops if c.kind == "F"))
            if fused:
                return fused
        return sum(cost(c) for c in ops)


def compiled(path):
    done = subprocess.run([pipec, "--verify", "--emit=json", "--lowering=global", path], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(open(path).read() + done.stderr)
    return done.stdout


def tried(text, times, what):
    path = scratch + ".pipe"
    with open(path, "w") as f:
        f.write(text)
    try:
        p = Program(compiled(path))
        p.times = times
        machine.check_times(p, rng)
    except machine.Wrong as e:
        print("differ:", what, e, "" if wrong else text)
        return 1
    return 0


differ = n = 0
for file, name in LIBRARY * 3:
    t, P = Times(), rng.choice((2, 3, 4))
    M = P * rng.randint(1, 3) if file != "dualpipev" else 2 * P + rng.randint(0, 3)
    again = "recompute s, m when (s + m) % 2 == 0  " if file == "gpipe" and rng.random() < 0.5 else ""
    away = "offload s, m when m % 2 == 0  " if file in ("gpipe", "1f1b") and not again else ""
    head = 'import "%s.pipe"\nschedule x(P = %d, M = %d) ' % (file, P, M)
    if away or again:
        text = head + "extends %s(P = P, M = M) without checks {\n  %s%s%s\n}\n" % (name, again, away, t.text(False))
    else:
        text = head + "extends %s(P = P, M = M) {\n  %s\n}\n" % (name, t.text(False))
    differ, n = differ + tried(text, t, file), n + 1
for _ in range(6):  # slices, two of a microbatch
    t, P, M, Q = Times(), rng.randint(1, 3), rng.randint(1, 4), rng.randint(2, 3)
    text = ("schedule x(P = %d, M = %d, Q = %d) {\n  ranks P\n  pipe net stages P mbs M slices Q place s -> s\n  %s\n  order r {\n"
            "    op f(k) = F(k/Q, k%%Q)\n    op b(k) = B(k/Q, Q-1 - k%%Q)\n    steady k in 0..M*Q { f(k)  b(k - (P-1-r + Q-1)) }\n    U\n  }\n}\n"
            % (P, M, Q, t.text(True)))
    differ, n = differ + tried(text, t, "slices"), n + 1
print(n, "programs", differ, "differ")

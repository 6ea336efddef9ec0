# SPDX-License-Identifier: MIT
# List scheduling written a second time, slowly: in steps of one unit of time, every rank that is free takes what
# lang/spec.md 5.6 says. Random chains of stages with random costs, by microbatch too, credits and keys, updates, actions and copies are
# compiled, and each rank's order must be the one found here. Prints its seed.
import random
import subprocess
import sys

pipec, seed, cases, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
wrong = "--break" in sys.argv
rng = random.Random(seed)


class Case:
    def __init__(c):
        c.P, c.M = rng.randint(1, 4), rng.randint(1, 7)
        c.F = [rng.randint(1, 5) for _ in range(c.P)]
        c.B, c.U, c.FB = rng.randint(1, 7), rng.randint(0, 2), rng.choice([0, rng.randint(1, 9)])
        c.more = [rng.choice([0, rng.randint(1, 9)]) for _ in range(4)]  # of F, B, OFF and FB, by microbatch
        c.send = rng.randint(0, 3)
        c.OFF, c.LOAD = rng.randint(1, 4), rng.randint(1, 4)
        c.extra = rng.randint(0, 2)
        c.keys = rng.sample(range(4), 4)  # of U, of the pair, of B, of F
        c.updates = rng.random() < 0.5
        c.pairs = rng.random() < 0.5
        c.copies = rng.random() < 0.4
        c.every = rng.randint(1, 3)

    def credit(c, r):
        return c.P - r + c.extra

    def by(c, k, m):
        return c.more[k] * m % 4

    def time(c, r, kind, m):
        at = {"F": (c.F[r], 0), "B": (c.B, 1), "U": (c.U, -1), "OFF": (c.OFF, 2), "LOAD": (c.LOAD, -1)}[kind]
        return at[0] + (c.by(at[1], m) if at[1] >= 0 else 0)

    def text(c):
        k = c.keys
        body = f"    B(m) @ {k[2]}\n    F(m) @ {k[3]} when inflight(r) + host(r) < {c.P} - r + {c.extra}\n"
        if c.updates:
            body += f"    if m % {c.every} == {c.every} - 1 || m == {c.M} - 1 {{ U(m) @ {k[0]} }}\n"
        if c.pairs:
            body += f"    overlap {{ F(m)  B }} @ {k[1]} when inflight(r) <= {c.P} - r + {c.extra}\n"
        if c.copies:
            body += "    if m % 2 == 0 { OFF(m) @ m  LOAD(m) @ m when inflight(r) < 9 }\n"
        times = " : ".join(f"s == {s} ? {t}" for s, t in enumerate(c.F))
        return (
            f"schedule s() {{\n  ranks {c.P}\n  pipe net stages {c.P} mbs {c.M} place s -> s\n"
            f"  time s {{ U = {c.U}  send = {c.send}  LOAD = {c.LOAD} }}\n"
            f"  time s, m {{ F = ({times} : 1) + {c.more[0]}*m%4  B = {c.B} + {c.more[1]}*m%4"
            f"  OFF = {c.OFF} + {c.more[2]}*m%4  FB = {c.FB} > 0 ? {c.FB} + {c.more[3]}*m%4 : 0 }}\n"
            f"  order r {{ rules m {{\n{body}  }} {'' if c.updates else 'U '}}}\n"
            f"  check staleness(r) < 99 for r in 0..{c.P}\n}}\n"
        )


class Rank:
    def __init__(k):
        k.order, k.done = [], set()
        k.free, k.running, k.live, k.host = 0, [], 0, 0
        k.copy_free, k.copy, k.gone = 0, None, []


def play(c):
    """The order of each rank; None: it starves."""
    P, M = c.P, c.M
    end = {}  # of an op that has begun: when what it made is there, on its own rank
    ranks = [Rank() for _ in range(P)]
    due = [m for m in range(M) if m % c.every == c.every - 1 or m == M - 1] if c.updates else []
    all_ops = M * 2 + len(due)

    def arrives(r, op):
        """When all inputs are known to be there; None: not known."""
        kind, m = op
        need = []
        if kind == "F":
            need = [((r - 1, "F", m), c.send)] if r > 0 else []
        elif kind == "B":
            need = [((r, "F", m), 0)] + ([((r + 1, "B", m), c.send)] if r + 1 < P else [])
            if c.copies and m % 2 == 0:
                need.append(((r, "LOAD", m), 0))
        elif kind == "U":
            need = [((r, "B", m), 0)]
        elif kind == "OFF":
            need = [((r, "F", m), 0)]
        else:
            need = [((r, "OFF", m), 0)]
        if any(n not in end for n, _ in need):
            return None
        return max([end[n] + t for n, t in need], default=0)

    def frozen(r):
        return any(("U", m) not in ranks[r].done and ("B", m) in ranks[r].done for m in due)

    def ready(r, kind, now):
        got = []
        for m in due if kind == "U" else range(M):
            if (kind, m) in ranks[r].done:
                continue
            at = arrives(r, (kind, m))
            if at is not None and at <= now:
                got.append((at, m))
        return min(got) if got else None  # all of a kind have one key

    def take(r, ops, now):
        k = ranks[r]
        if len(ops) == 2:
            time = c.FB and c.FB + c.by(3, ops[0][1]) or sum(c.time(r, *op) for op in ops)
        else:
            time = c.time(r, *ops[0])
        for op in ops:
            end[(r,) + op] = now + time
            k.done.add(op)
            k.live += op[0] == "F"
        k.order.append(ops)
        k.free, k.running = now + time, ops

    limit = 60 * (M + P) * 16
    now = 0
    while any(len(k.done) < all_ops for k in ranks):
        if now > limit:
            return None
        moved = True
        while moved:  # ops and copies that take no time
            moved = False
            for r, k in enumerate(ranks):
                if k.running and now >= k.free:
                    k.live -= sum(op[0] == "B" for op in k.running)
                    k.live -= len(k.gone)
                    k.host += len(k.gone)
                    k.running, k.gone = [], []
                if k.copy and now >= k.copy_free:
                    if k.copy[0] == "OFF":
                        if k.running:
                            k.gone.append(k.copy)
                        else:
                            k.live, k.host = k.live - 1, k.host + 1
                    k.copy = None
                if c.copies and not k.copy:
                    best = None
                    for kind in ("OFF", "LOAD"):
                        for m in range(0, M, 2):
                            at = arrives(r, (kind, m))
                            if (r, kind, m) in end or at is None or at > now:
                                continue
                            best = min(best, (m, at, kind)) if best else (m, at, kind)
                    if best and (best[2] == "OFF" or k.live < 9):
                        m, _, kind = best
                        if kind == "LOAD":
                            k.live, k.host = k.live + 1, k.host - 1
                        end[(r, kind, m)] = now + c.time(r, kind, m)
                        k.copy, k.copy_free = (kind, m), end[(r, kind, m)]
                        moved = True
                if now < k.free:
                    continue
                f, b, u = ready(r, "F", now), ready(r, "B", now), ready(r, "U", now)
                if frozen(r):
                    b = None
                some = []
                if u:
                    some.append((c.keys[0], [("U", u[1])]))
                if c.pairs and f and b and k.live <= c.credit(r):
                    some.append((c.keys[1], [("F", f[1]), ("B", b[1])]))
                if b:
                    some.append((c.keys[2], [("B", b[1])]))
                if f and k.live + k.host < c.credit(r) + wrong:
                    some.append((c.keys[3], [("F", f[1])]))
                if some:
                    take(r, min(some)[1], now)
                    moved = True
        now += 1
    return [k.order for k in ranks]


def text_of(r, action):
    ops = [f"{r}{kind}{m}" for kind, m in action]
    return "(" + ";".join(ops) + ")" if len(ops) > 1 else ops[0]


counts = {"orders": 0, "starved": 0, "pairs": 0, "updates": 0, "copies": 0}
differ = 0
print("seed", seed)
for i in range(cases):
    c = Case()
    with open(path, "w") as f:
        f.write(c.text())
    got = subprocess.run([pipec, "--verify", "--dump-after=expand", path], capture_output=True, text=True)
    want = play(c)
    if "starves" in got.stderr or want is None:
        counts["starved"] += 1
        if ("starves" in got.stderr) != (want is None):
            differ += 1
            print("starves only", "here" if want is None else "there", c.text(), got.stderr)
        continue
    lines = [l for l in got.stdout.split("\n") if l.startswith("rank ")]
    for r in range(c.P):
        words = [w for w in lines[r].split(": ", 1)[1].split() if w[0] != "[" and "OFF" not in w and "LOAD" not in w]
        expect = [text_of(r, a) for a in want[r]] + ([] if c.updates else [f"{r}U"])
        counts["orders"] += 1
        counts["pairs"] += sum(len(a) == 2 for a in want[r])
        counts["updates"] += sum(a[0][0] == "U" for a in want[r])
        counts["copies"] += c.copies
        if words != expect:
            differ += 1
            if not wrong:
                print("case", i, "rank", r, "\n", " ".join(words), "\n", " ".join(expect), "\n", c.text())
print(" ".join(f"{v} {k}" for k, v in counts.items()))
print(differ, "differ")
sys.exit(differ != 0)

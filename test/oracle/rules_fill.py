# SPDX-License-Identifier: MIT
# What a rank waits for, written a second time, slowly: lang/spec.md 5.6 in steps of one unit of time, for chains of
# stages with chunks, conditions that hold back who is first in line, actions with partners, ops that fill, and updates.
# Random ones are compiled, and each rank's order must be the one found here.
# Prints its seed. --break=wait: one that waits for whatever comes; --break=first: only the
# first filler is looked at.
import random
import re
import subprocess
import sys

pipec, seed, cases, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
broken = sys.argv[5].split("=")[1] if len(sys.argv) > 5 else ""
rng = random.Random(seed)


class Statement:
    """Ops or actions of one line of a block, on one stage: (kind, chunk) of each part, the first with a microbatch."""

    def __init__(self, parts, key, when, only):
        self.parts, self.key, self.when, self.only = parts, key, when, only

    def text(self):
        ops = [f"{k}[{c}]" + ("(m)" if i == 0 else "") for i, (k, c) in enumerate(self.parts)]
        key = "" if self.key is None else f" @ {self.key[0]}*m + {self.key[1]}"
        when = f" when {self.when}" if self.when else ""
        if self.parts[0][0] == "U":
            return f"if {self.only} {{ {ops[0]}{key}{when} }}"
        line = (f"overlap {{ {ops[0]}  {ops[1]} }}" if len(ops) > 1 else ops[0]) + key + when
        return f"if m % 2 == {self.only} {{ {line} }}" if self.only is not None else line

    def lists(self, m):
        return m in self.due if self.parts[0][0] == "U" else self.only is None or m % 2 == self.only

    def priority(self, m):
        return None if self.key is None else self.key[0] * m + self.key[1]


class Case:
    def __init__(c):
        c.P, c.V, c.M = rng.randint(1, 3), rng.randint(1, 2), rng.randint(2, 6)
        c.time = {k: [rng.randint(1, 9 if k != "I" else 4) for _ in range(c.P * c.V)] for k in "FIWU"}
        c.send = rng.randint(0, 4)
        c.cut = rng.randint(1, c.M - 1) if rng.random() < 0.3 else c.M  # two blocks
        key = lambda: None if rng.random() < 0.3 else (rng.choice((0, 0, 1, 2, -1)), rng.randint(0, 9))
        when = lambda k: None if rng.random() < 0.5 else rng.choice((
            f"m != {rng.randint(0, c.M - 1)} || inflight(r, {k}) >= {rng.randint(0, 2)}", f"inflight(r) < {rng.randint(2, 4) * c.V}",
            f"m % 2 == 0 || held(r) >= {rng.randint(0, 1)}", f"inflight(r) < {3 * c.V} && held(r) < {rng.randint(1, 4)}"))
        some = []
        for k in range(c.V):
            for kind in "FIW":
                if rng.random() < 0.3:
                    some += [Statement([(kind, k)], key(), when(k), 0), Statement([(kind, k)], key(), when(k), 1)]
                else:
                    some.append(Statement([(kind, k)], key(), when(k), None))
        for _ in range(rng.choice((0, 0, 1, 2))):
            parts = [(rng.choice("FI"), rng.randrange(c.V)), (rng.choice("FIW"), rng.randrange(c.V))]
            some.append(Statement(parts, key(), when(parts[0][1]), None))
        c.due = []
        if c.cut == c.M and rng.random() < 0.4:
            n = rng.randint(1, 3)
            c.due = [m for m in range(c.M) if m % n == n - 1 or m == c.M - 1]
            for k in range(c.V):
                some.append(Statement([("U", k)], key(), when(k), f"m % {n} == {n - 1} || m == {c.M - 1}"))
                some[-1].due = c.due
        rng.shuffle(some)
        c.statements = some

    def text(c):
        body = "".join(f"      {s.text()}\n" for s in c.statements)
        times = "  ".join(f"{k} = " + " : ".join(f"s == {s} ? {t}" for s, t in enumerate(v)) + " : 1" for k, v in c.time.items())
        order = ""
        for lo, hi in c.blocks():
            order += f"    rules m in {lo}..{hi} {{\n{body}    }}\n"
        return (f"schedule s() {{\n  ranks {c.P}\n  pipe net stages {c.P * c.V} mbs {c.M} place s -> s % {c.P}\n"
                f"  time s {{ {times}  send = {c.send} }}\n  order r {{\n{order}    {'' if c.due else 'U'}\n  }}\n}}\n")

    def blocks(c):
        return [(0, c.M)] if c.cut == c.M else [(0, c.cut), (c.cut, c.M)]


class Cand:
    def __init__(self, statement, m, first):
        self.statement, self.m, self.place = statement, m, first
        self.key = statement.priority(m)


class Rank:
    def __init__(self, c, r):
        self.r, self.order, self.free, self.running = r, [], 0, []
        self.live, self.held = [0] * c.V, [0] * c.V
        self.plan = []  # blocks
        for lo, hi in c.blocks():
            for joint in (False, True):  # those that stand alone are listed first
                some = [Cand(s, m, 0) for m in range(lo, hi) for s in c.statements if s.lists(m) and (len(s.parts) > 1) == joint]
                block = some if not joint else block + some
            for i, x in enumerate(block):
                x.place = i
            self.plan.append(block)
        self.at = 0


def play(c):
    """The order of each rank; None: it starves."""
    end = {}  # of what has begun, (kind, stage, m): when its action ends
    ranks = [Rank(c, r) for r in range(c.P)]
    last = c.P * c.V - 1
    stage = lambda r, k: k * c.P + r

    def arrives(kind, s, m):
        """When all inputs are there; None: not known."""
        need = {"F": [("F", s - 1)] if s > 0 else [], "I": [("F", s)] + ([("I", s + 1)] if s < last else []), "W": [("I", s)], "U": [("W", s)]}[kind]
        at = 0
        for k, q in need:
            if (k, q, m) not in end:
                return None
            at = max(at, end[k, q, m] + (c.send if q % c.P != s % c.P else 0))
        return at

    def names(r, x):
        k, chunk = x.statement.parts[0]
        return (k, stage(r, chunk), x.m)

    def frozen(r, part):
        """Gradients of the stage wait for an update that is due."""
        s = stage(r, part[1])
        return part[0] == "W" and any(("W", s, m) in end and ("U", s, m) not in end for m in c.due)

    def arrival(r, x):
        op = names(r, x)
        return None if op in end else arrives(*op)

    def line(k, block, by):
        """Who is first in line, of each statement and stage."""
        top = {}
        for x in block:
            at = arrival(k.r, x)
            if at is None or at > by:
                continue
            rank = (x.key if x.key is not None else 0, at, x.m, x.place)
            if x.statement not in top or rank < top[x.statement][0]:
                top[x.statement] = (rank, x)
        return top

    def partner(k, block, by, part, taken):
        best = None
        if frozen(k.r, part):
            return None
        for x in block:
            if len(x.statement.parts) > 1 or x.statement.parts[0] != part or names(k.r, x) in taken:
                continue
            at = arrival(k.r, x)
            if at is None or at > by:
                continue
            keyless = x.key is None
            rank = (keyless, x.key or 0, at, x.m, x.place)
            best = min(best, (rank, names(k.r, x))) if best else (rank, names(k.r, x))
        return best and best[1]

    def holds(k, x):
        if frozen(k.r, x.statement.parts[0]):
            return False
        if not x.statement.when:
            return True
        text = x.statement.when.replace("||", " or ").replace("&&", " and ")
        inflight = lambda r, chunk=None: sum(k.live) if chunk is None else k.live[chunk]
        return bool(eval(text, {}, {"m": x.m, "r": k.r, "inflight": inflight, "held": lambda r: sum(k.held)}))

    def ops_of(k, block, by, x):
        """What it would take at that time; None: a partner is not there."""
        ops = [names(k.r, x)]
        for part in x.statement.parts[1:]:
            other = partner(k, block, by, part, ops)
            if other is None:
                return None
            ops.append(other)
        return ops

    def choose(k, block, now):
        best, fillers = None, []
        for rank, x in line(k, block, now).values():
            ops = ops_of(k, block, now, x)
            if ops is None or not holds(k, x):
                continue
            if x.key is not None:
                best = min(best, (rank, ops)) if best else (rank, ops)
            else:
                fillers.append((rank, ops))
        if best:
            return best[1]
        for _, ops in sorted(fillers)[:1 if broken == "first" else None]:
            if not awaited(k, block, now, now + sum(c.time[o][s] for o, s, _ in ops)):
                return ops
        return None

    def awaited(k, block, now, until):
        times = sorted({at for x in block for at in [arrival(k.r, x)] if at is not None and now < at < until})
        for at in times:
            if broken == "wait" and any(arrival(k.r, x) == at and x.key is not None for x in block):
                return True
            for _, x in line(k, block, at).values():
                if x.key is not None and holds(k, x) and ops_of(k, block, at, x):
                    return True
        return False

    def take(k, ops, now):
        k.order.append(ops)
        k.running, k.free = ops, now + sum(c.time[o][s] for o, s, _ in ops)
        for kind, s, m in ops:
            end[kind, s, m] = k.free
            k.live[s // c.P] += kind == "F"
            k.held[s // c.P] += kind == "I"

    now, quiet = 0, 0
    while any(k.at < len(k.plan) for k in ranks):
        moved = True
        while moved:
            moved = False
            for k in ranks:
                if now < k.free:
                    continue
                for kind, s, _ in k.running:
                    k.live[s // c.P] -= kind == "W"
                    k.held[s // c.P] -= kind == "W"
                k.running = []
                while k.at < len(k.plan) and all(names(k.r, x) in end for x in k.plan[k.at]):
                    k.at += 1
                if k.at == len(k.plan):
                    continue
                ops = choose(k, k.plan[k.at], now)
                if ops:
                    take(k, ops, now)
                    moved, quiet = True, 0
        now, quiet = now + 1, quiet + 1
        if quiet > 400:
            return None
    return [k.order for k in ranks]


def compiled(c):
    with open(path, "w") as f:
        f.write(c.text())
    return subprocess.run([pipec, "--verify", "--dump-after=expand", path], capture_output=True, text=True)


print("seed", seed)
counts, differ = dict.fromkeys(("orders", "starved", "actions", "updates"), 0), 0
for i, c in enumerate(Case() for _ in range(cases)):
    got, want = compiled(c), play(c)
    starves = "starves" in got.stderr
    if starves != (want is None):
        differ += 1
        print("" if broken else f"one starves\n{c.text()}{got.stderr}")
    if starves or want is None:
        counts["starved"] += 1
        continue
    played = dict(re.findall(r"^rank (\d+): (.*)", got.stdout, re.M))
    assert len(played) == c.P, (got.stderr, c.text())
    for r, actions in enumerate(want):
        words = ["".join(f"{s}{kind}{m}" for kind, s, m in a) if len(a) == 1 else "(" + ";".join(f"{s}{kind}{m}" for kind, s, m in a) + ")"
                 for a in actions]
        found = re.sub(r"\[\w+\] |\d+U(?!\d)", "", played[str(r)]).split()
        counts["orders"] += 1
        counts["actions"] += sum(len(a) == 2 for a in actions)
        counts["updates"] += sum(a[0][0] == "U" for a in actions)
        differ += found != words
        if found != words and not broken:
            print("case", i, "rank", r, "\n", " ".join(found), "\n", " ".join(words), "\n", c.text())
print(" ".join(f"{v} {k}" for k, v in counts.items()))
print(differ, "differ")
sys.exit(differ != 0)

# SPDX-License-Identifier: MIT
"""--for-all=M of what `use` makes of other schedules, whole and in part, in clocks and loops, with labels around them and ops
without index behind: against compiles of every M up to a bound (claimed.py).

Each text runs every F and B, or I and W, once, unless an op without index takes another one than the writer has thought; M is at least 16.
"""
import re

from claimed import judge_lists

PHASES = ["warmup", "steady", "flush"]


def size(v):
    """(a, m) is a + m * n, n the microbatches of the schedule at hand."""
    a, m = v
    return f"{a:+d}".join(["n", ""]) if m and a else "n" if m else str(a)


def minus(v, w):
    return v[0] - w[0], v[1] - w[1]


def mid(rng, lo, hi):
    """A place between them; None: there is none for sure."""
    span = minus(hi, lo)
    if span[1]:
        return rng.choice([(lo[0] + 2, lo[1]), (hi[0] - 2, hi[1])])
    return (lo[0] + span[0] // 2, lo[1]) if span[0] > 1 else None


def run(rng, kind, lo, hi):
    """A loop or clock over lo..hi."""
    to = f"{size(lo)}..{size(hi)}"
    down = f"{size(minus(hi, (1, 0)))}..{size(minus(lo, (1, 0)))} step -1"
    return rng.choice([
        f"do m in {to} {{ {kind}(m) }}",
        f"do m in {down} {{ {kind}(m) }}",
        f"do {size(minus(hi, lo))} {{ {kind} }}",
        f"do {size(minus(hi, lo))} {{ {kind} }}",
        f"clock m in {to} {{ {kind}(m) @ 2*m }}",
        f"clock m in {down} {{ {kind}(m) @ 3*m }}",
        f"clock m in {down} {{ {kind}(m) @ n - m }}" if minus(hi, lo)[1] == 0 else f"clock m in {to} period 2 {{ {kind}(m) @ 1 }}",
        f"clip steady m {{ if m >= {size(lo)} && m < {size(hi)} {{ {kind}(m) }} }}",
    ])


class Texts:
    def __init__(self, rng):
        self.rng, self.schedules = rng, []

    def cover(self, kind, lo, hi, depth, outer=False):
        """Statements that run kind of lo..hi, each once."""
        rng, at = self.rng, mid(self.rng, lo, hi)
        way = rng.random()
        if depth < 4 and way < 0.35 and at:
            parts = [self.cover(kind, lo, at, depth + 1), self.cover(kind, at, hi, depth + 1)]
            return "  ".join(parts if rng.random() < 0.6 else parts[::-1])
        if depth < 4 and way < 0.5:
            return f"{rng.choice(PHASES)} {{ {self.cover(kind, lo, hi, depth + 1)} }}"
        if depth < 3 and way < 0.8 and minus(hi, lo)[1]:
            return self.use(kind, lo, hi, depth)
        if depth < 3 and way < 0.87 and not minus(hi, lo)[1] and minus(hi, lo)[0] > 1:
            return self.stamped(kind, lo, hi)
        return run(rng, kind, lo, hi)

    def use(self, kind, lo, hi, depth):
        """Another schedule, whole or in part."""
        rng, name = self.rng, f"u{len(self.schedules)}"
        self.schedules.append(None)
        whole = rng.random() < 0.3
        n = ("n", "") if whole else (size(minus(hi, lo)), f" @ {size(lo)}" if lo != (0, 0) else "")
        part = f" in {size(lo)}..{size(hi)}" if whole else ""
        at = rng.choice([(2, 0), (-2, 1)])
        body = "  ".join(f"{rng.choice(PHASES)} {{ {self.cover(kind, a, b, depth + 1)} }}" for a, b in [((0, 0), at), (at, (0, 1))])
        self.schedules[int(name[1:])] = f"schedule {name}(P, n) {{\n{self.head('n')}  order r {{ {body} }}\n}}\n"
        use = f"use {name}(P, {n[0]}){part}{n[1]}"
        return f"{rng.choice(PHASES)} {{ {use} }}" if rng.random() < 0.4 else use

    def stamped(self, kind, lo, hi):
        """A clock of few turns that uses another one."""
        rng, name, k = self.rng, f"u{len(self.schedules)}", hi[0] - lo[0]
        step = rng.choice([1, -1])
        self.schedules.append(f"schedule {name}(P, n) {{\n{self.head('n')}  order r {{ clock m {{ {kind}({'m' if step > 0 else 'n-1-m'}) @ 5*m }} }}\n}}\n")
        rest = f"do j in 0..{k - k // 2} {{ {kind} @ 50 + {2 * step}*j }}"
        return f"clock i in 0..1 {{ use {name}(P, {k // 2}) @ {size(lo)}  {rest} }}"

    @staticmethod
    def head(n):
        return f"  ranks P\n  pipe net stages P mbs {n} place s -> s\n"


def text(rng):
    t = Texts(rng)
    body = "\n    ".join(re.sub(r"\bn\b", "M", t.cover(kind, (0, 0), (0, 1), 0)) for kind in rng.choice(["FB", "FIW"]))
    return ("".join(t.schedules[::-1]) +
            f"schedule s(P = {rng.choice([1, 2])}, M = 16) requires M >= 16 {{\n{Texts.head('M')}  order r {{\n    {body}\n    U\n  }}\n}}\n")


if __name__ == "__main__":
    judge_lists("u", text)

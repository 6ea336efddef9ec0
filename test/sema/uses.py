# SPDX-License-Identifier: MIT
"""Random orders of `clock`, `use`, labels, clip and ops without index, expanded by pipec and by a second reading of
the text (lang/spec.md 5.1 to 5.7) that shares nothing with it: the same ops, each in its phase, or both refuse.

usage: uses.py PIPEC SCRATCH SEED PROGRAMS

A rank has two chunks of two slices. A statement is a tuple: ("op", (kind, chunk, slice), microbatch, stamp), ("label", phase, body),
("do", name, from, to, step, body), ("clip", body), ("clock", name, from, to, step, period, body), ("use", schedule, shift,
range). A value is (a, name or None, times). In the second reading an op is ((kind, chunk), place, ...): its place in the row of
those, two for each microbatch, of which backwards take the last slice first.
"""
import os
import random
import re
import subprocess
import sys

pipec, scratch, seed, programs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
PHASES = ["warmup", "steady", "flush"]


# ---- texts

def value(rng, names, low, high, times):
    if not names or rng.random() < 0.3:
        return rng.randint(low, high), None, 0
    return rng.randint(-1, 2) if times == [1] else rng.randint(0, high), rng.choice(names), rng.choice(times)


def ends(rng, most):
    a, b = rng.randint(0, 3), rng.randint(0, most)
    return (b, a - 1, -1) if rng.random() < 0.3 else (a, b, 1)


def block(rng, clock, mbs, names, depth, schedules):
    out = []
    for _ in range(rng.randint(1, 3)):
        way, new = rng.random(), f"v{len(names)}"
        usable = [i for i, sc in enumerate(schedules) if sc[2] or not clock]
        if way < 0.35 or depth > 3:
            index = None if rng.random() < 0.35 else value(rng, names, -2, mbs, [1])
            op = rng.choice("FFB"), rng.randint(0, 1), rng.randint(0, 1)
            out.append(("op", op, index, value(rng, names, 0, 40, [1, 2, 3, -1, -2]) if clock else None))
        elif way < 0.5:
            out.append(("do", new, *ends(rng, 6), block(rng, clock, mbs, names + [new], depth + 1, schedules)))
        elif way < 0.65:
            out.append(("label", rng.choice(PHASES), block(rng, clock, mbs, names, depth + 1, schedules)))
        elif way < 0.7:
            out.append(("clip", block(rng, clock, mbs, names, depth + 1, schedules)))
        elif way < 0.82 and not clock:
            out.append(("clock", new, *ends(rng, 5), rng.choice([0, 0, 1, 3, 7]), block(rng, True, mbs, names + [new], depth + 1, schedules)))
        elif usable:
            shift = value(rng, names, -1, 3, [1]) if rng.random() < 0.4 else None
            part = (rng.randint(0, 2), rng.randint(1, 6)) if rng.random() < 0.25 else None
            out.append(("use", rng.choice(usable), shift, part))
    return out or [("op", ("F", 0, 0), None, (0, None, 0) if clock else None)]


def draw(rng):
    """(microbatches, body, whether all of it is stamped) of each schedule; the last one is compiled."""
    schedules = []
    for last in [False] * rng.randint(1, 3) + [True]:
        mbs, stamped = 8 if last else rng.randint(3, 7), not last and rng.random() < 0.6
        if stamped:
            body = [("clock", "v0", *ends(rng, 4), rng.choice([0, 0, 2, 5]), block(rng, True, mbs, ["v0"], 1, schedules))]
            body = [("label", rng.choice(PHASES), body)] if rng.random() < 0.3 else body
        else:
            body = block(rng, False, mbs, [], 0, schedules)
        schedules.append((mbs, body, stamped))
    return schedules


def say(v):
    a, name, times = v
    return f"{name}*({times}) + ({a})" if name else str(a)


def lines(body):
    for what, *of in body:
        if what == "op":
            yield f"{of[0][0]}[{of[0][1]}]" + (f"({say(of[1])}, {of[0][2]})" if of[1] else "") + (f" @ {say(of[2])}" if of[2] else "")
        elif what == "use":
            number, shift, part = of
            yield (f"use u{number}()" + (f" in {part[0]}..{part[1]}" if part else "") +
                   (f" @ {say(shift)}" if shift else ""))
        else:
            yield {"do": "do {} in {}..{} step {} {{", "clock": "clock {} in {}..{} step {} period {} {{", "label": "{} {{",
                   "clip": "clip {{"}[what].format(*of).replace(" period 0", "")
            yield from lines(of[-1])
            yield "}"


def text(schedules):
    return "".join(f"schedule u{i}() {{\nranks 1\npipe net stages 2 mbs {mbs} slices 2 place s -> 0\norder r {{\n" + "\n".join(lines(body)) + "\n}\n}\n"
                   for i, (mbs, body, _) in enumerate(schedules))


# ---- the second reading

class Refused(Exception):
    pass


class Order:
    """An order that is being run: in place of a `use` of `outer`, unless that is None."""

    def __init__(self, mbs, outer=None, shift=0, part=None, clip=False, listed=False):
        self.mbs, self.outer, self.shift, self.part = mbs, outer, shift, part
        self.clip, self.listed = clip, listed
        self.next = {(k,c): 0 for k in "FB" for c in (0, 1)}
        self.total = shift + (outer.total if outer else 0)


def turned(op, q):
    return q if op[0] == "F" else 1 - q


def number(v, env):
    return v[0] + (env[v[1]] * v[2] if v[1] else 0)


def microbatch(order, mb, clip):
    """Which one it is outside of all; None: it is left out."""
    while True:
        if not 0 <= mb < order.mbs:
            if clip:
                return None
            raise Refused
        if not order.outer:
            return mb
        if order.part and not order.part[0] <= mb < order.part[1]:
            return None
        mb, clip, order = mb + order.shift, order.clip, order.outer


def list_op(order, key, kind, place, at, label, listed):
    """In a clock: ops that run, and all of its own order, since they count."""
    own = order
    while at is not None and own.listed:
        own = own.outer
    if not order.listed or at is not None:
        listed.append([key, kind, at, label, (place if own is order else at - 2 * own.total) + 1])


def run_clock(schedules, out, order, env, clip, label, listed, of):
    name, a, b, step, period, body = of
    own, before = [], dict(order.next)
    for i in range(a, b, step):
        turn = []
        run(schedules, out, order, body, {**env, name: i}, clip, label, turn)
        own += [[key + period * i, *rest] for key, *rest in turn]
    if listed is not None:
        listed += own
        return
    own.sort(key=lambda o: o[0])
    ops = [o for o in own if o[2] is not None]
    if any(p[0] == q[0] for p, q in zip(ops, ops[1:])):
        raise Refused
    order.next = before
    for _, kind, _, _, behind in own:
        order.next[kind] = behind
    for _, kind, at, label, _ in ops:
        out.append((kind, at, label))


def once(ops):
    if len({o[:2] for o in ops}) < len(ops):
        raise Refused


def run_use(schedules, out, order, env, clip, label, listed, of):
    used, shift, part = of
    mbs, body, _ = schedules[used]
    inner = Order(mbs, order, number(shift, env) if shift else 0, part, clip, listed is not None)
    new, first = [], 0 if listed is None else len(listed)
    run(schedules, new, inner, body, {}, False, label, listed)
    if listed is not None:
        new = [(kind, at) for _, kind, at, _, _ in listed[first:]]
    for kind, at, *_ in new:
        if at is not None:
            order.next[kind] = at - 2 * order.total + 1
    if listed is None:
        out += new


def run(schedules, out, order, body, env, clip, label, listed):
    for what, *of in body:
        if what == "op":
            kind, index, stamp = of
            *kind, q = kind
            kind = tuple(kind)
            place = order.next[kind] if index is None else 2 * number(index, env) + turned(kind, q)
            order.next[kind] = place + 1
            at = microbatch(order, place // 2, clip)
            at = None if at is None else 2 * at + place % 2
            if listed is not None:
                list_op(order, number(stamp, env), kind, place, at, label, listed)
            elif at is not None:
                out.append((kind, at, label))
        elif what == "do":
            for i in range(*of[1:4]):
                run(schedules, out, order, of[4], {**env, of[0]: i}, clip, label, listed)
        elif what == "label":
            run(schedules, out, order, of[1], env, clip, of[0], listed)
        elif what == "clip":
            run(schedules, out, order, of[0], env, True, label, listed)
        elif what == "clock":
            run_clock(schedules, out, order, env, clip, label, listed, of)
        else:
            run_use(schedules, out, order, env, clip, label, listed, of)


def reading(schedules):
    out = []
    try:
        run(schedules, out, Order(schedules[-1][0]), schedules[-1][1], {}, False, None, None)
        once(out)
    except Refused:
        return None
    first = next((i for i, o in enumerate(out) if o[0][0] == "B"), len(out))
    last = max((i for i, o in enumerate(out) if o[0][0] == "F"), default=-1)
    phase = ["warmup" if i < first else "steady" if i <= last else "flush" for i in range(len(out))]
    return [(kind, at, label or of) for (kind, at, label), of in zip(out, phase)] or None


# ---- pipec's

def expanded(schedules, path):
    got = subprocess.run([pipec, "--dump-after=expand", f"--schedule=u{len(schedules) - 1}", path], capture_output=True, text=True)
    if got.returncode not in (0, 1):
        sys.exit(f"{path}: it dies: {got.stderr}")
    ops = re.search(r"^rank 0: (.*)$", got.stdout, re.M)
    if not ops:
        return None
    out, phase = [], None
    for word in ops[1].split():
        if word[0] == "[":
            phase = word[1:-1]
        else:
            chunk, kind, mb, q = re.fullmatch(r"(\d)([FB])(\d+)\.(\d)", word).groups()
            op = kind, int(chunk)
            out.append((op, 2 * int(mb) + turned(op, int(q)), phase))
    return out


os.makedirs(scratch, exist_ok=True)
ran = refused = 0
for case in range(programs):
    schedules = draw(random.Random(f"{seed} {case}"))
    path = os.path.join(scratch, "u.pipe")
    with open(path, "w") as f:
        f.write(text(schedules))
    want, got = reading(schedules), expanded(schedules, path)
    if want != got:
        sys.exit(f"seed {seed}, case {case}, {path}:\n{want}\nis what it says, and pipec makes\n{got}")
    ran, refused = ran + (want is not None), refused + (want is None)
print(f"{ran} expanded, {refused} refused")

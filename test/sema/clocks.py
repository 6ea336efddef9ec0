# SPDX-License-Identifier: MIT
"""Random orders of `clock`, loops, clip and ops without index, expanded by pipec and by a second reading of
the text (lang/spec.md 5.1 to 5.5) that shares nothing with it: the same ops, each in its phase, or both refuse.

usage: clocks.py PIPEC SCRATCH SEED PROGRAMS

The rank has two chunks of two slices. A statement is a tuple: ("op", (kind, chunk, slice), microbatch, stamp),
("do", name, from, to, step, body), ("clip", body), ("clock", name, from, to, step, period, body). A value is (a, name or None, times).
In the second reading an op is ((kind, chunk), place, ...): its place in the row of those, two for each microbatch, of which backwards
take the last slice first.
"""
import os
import random
import re
import subprocess
import sys

pipec, scratch, seed, programs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
MBS = 8


# ---- texts

def value(rng, names, low, high, times):
    if not names or rng.random() < 0.3:
        return rng.randint(low, high), None, 0
    return rng.randint(-1, 2) if times == [1] else rng.randint(0, high), rng.choice(names), rng.choice(times)


def ends(rng, most):
    a, b = rng.randint(0, 3), rng.randint(0, most)
    return (b, a - 1, -1) if rng.random() < 0.3 else (a, b, 1)


def block(rng, clock, names, depth):
    out = []
    for _ in range(rng.randint(1, 3)):
        way, new = rng.random(), f"v{len(names)}"
        if way < 0.45 or depth > 3:
            index = None if rng.random() < 0.35 else value(rng, names, -2, MBS, [1])
            op = rng.choice("FFB"), rng.randint(0, 1), rng.randint(0, 1)
            out.append(("op", op, index, value(rng, names, 0, 40, [1, 2, 3, -1, -2]) if clock else None))
        elif way < 0.6:
            out.append(("do", new, *ends(rng, 6), block(rng, clock, names + [new], depth + 1)))
        elif way < 0.75:
            out.append(("clip", block(rng, clock, names, depth + 1)))
        elif not clock:
            out.append(("clock", new, *ends(rng, 5), rng.choice([0, 0, 1, 3, 7]), block(rng, True, names + [new], depth + 1)))
    return out or [("op", ("F", 0, 0), None, (0, None, 0) if clock else None)]


def say(v):
    a, name, times = v
    return f"{name}*({times}) + ({a})" if name else str(a)


def lines(body):
    for what, *of in body:
        if what == "op":
            yield f"{of[0][0]}[{of[0][1]}]" + (f"({say(of[1])}, {of[0][2]})" if of[1] else "") + (f" @ {say(of[2])}" if of[2] else "")
        else:
            yield {"do": "do {} in {}..{} step {} {{", "clock": "clock {} in {}..{} step {} period {} {{", "clip": "clip {{"}[what].format(*of).replace(" period 0", "")
            yield from lines(of[-1])
            yield "}"


def text(body):
    return (f"schedule s() {{\nranks 1\npipe net stages 2 mbs {MBS} slices 2 place s -> 0\norder r {{\n" +
            "\n".join(lines(body)) + "\n}\n}\n")


# ---- the second reading

class Refused(Exception):
    pass


def turned(op, q):
    return q if op[0] == "F" else 1 - q


def number(v, env):
    return v[0] + (env[v[1]] * v[2] if v[1] else 0)


def run_clock(out, places, env, clip, of):
    name, a, b, step, period, body = of
    listed, before = [], dict(places)
    for i in range(a, b, step):
        turn = []
        run(out, places, body, {**env, name: i}, clip, turn)
        listed += [[key + period * i, *rest] for key, *rest in turn]
    listed.sort(key=lambda o: o[0])
    ops = [o for o in listed if o[3]]
    if any(p[0] == q[0] for p, q in zip(ops, ops[1:])):
        raise Refused
    places.update(before)
    for _, kind, place, _ in listed: # what clip leaves out counts, too
        places[kind] = place + 1
    out += [(kind, place) for _, kind, place, _ in ops]


def run(out, places, body, env, clip, listed):
    for what, *of in body:
        if what == "op":
            kind, index, stamp = of
            *kind, q = kind
            kind = tuple(kind)
            place = places[kind] if index is None else 2 * number(index, env) + turned(kind, q)
            places[kind] = place + 1
            exists = 0 <= place // 2 < MBS
            if not exists and not clip:
                raise Refused
            if listed is not None:
                listed.append([number(stamp, env), kind, place, exists])
            elif exists:
                out.append((kind, place))
        elif what == "do":
            for i in range(*of[1:4]):
                run(out, places, of[4], {**env, of[0]: i}, clip, listed)
        elif what == "clip":
            run(out, places, of[0], env, True, listed)
        else:
            run_clock(out, places, env, clip, of)


def reading(body):
    out = []
    try:
        run(out, {(k, c): 0 for k in "FB" for c in (0, 1)}, body, {}, False, None)
    except Refused:
        return None
    if len(set(out)) < len(out):
        return None
    first = next((i for i, o in enumerate(out) if o[0][0] == "B"), len(out))
    last = max((i for i, o in enumerate(out) if o[0][0] == "F"), default=-1)
    phase = ["warmup" if i < first else "steady" if i <= last else "flush" for i in range(len(out))]
    return [(*op, of) for op, of in zip(out, phase)] or None


# ---- pipec's

def expanded(path):
    got = subprocess.run([pipec, "--dump-after=expand", path], capture_output=True, text=True)
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
    body = block(random.Random(f"{seed} {case}"), False, [], 0)
    path = os.path.join(scratch, "s.pipe")
    with open(path, "w") as f:
        f.write(text(body))
    want, got = reading(body), expanded(path)
    if want != got:
        sys.exit(f"seed {seed}, case {case}, {path}:\n{want}\nis what it says, and pipec makes\n{got}")
    ran, refused = ran + (want is not None), refused + (want is None)
print(f"{ran} expanded, {refused} refused")

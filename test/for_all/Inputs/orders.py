# SPDX-License-Identifier: MIT
"""Random schedules by kernels and loops, most of them near right; campaign.py says of each form what comes of it."""
import random


def kernels(rng):
    """One kernel for each rank; a lag may be off."""
    P, V = rng.randint(1, 4), rng.choice((1, 1, 2))
    place = rng.choice(("s % P", f"s < P ? s : {2 * P - 1} - s", f"({P * V - 1} - s) % P")) if V == 2 else rng.choice(("s", "P-1-s"))
    split = rng.random() < 0.4
    stages = {r: [s for s in range(P * V) if eval_place(place, s, P) == r] for r in range(P)}
    body = []
    for r in range(P):
        ops = []
        for c, s in enumerate(stages[r]):
            lag = s + rng.choice((0, 0, 0, 1, -1, 3))
            back = lag + 2 * (P * V - 1 - s) + rng.choice((0, 1, 1, 2, -1, 4))
            ops.append((f"F[{c}](m - {lag})", lag))
            ops.append((f"{'I' if split else 'B'}[{c}](m - {back})", back))
            if split:
                w = back + rng.choice((0, 1, 2, 5))
                ops.append((f"W[{c}](m - {w})", w))
        if rng.random() < 0.8:
            ops.sort(key=lambda o: o[1])  # a turn runs old ops last
        else:
            rng.shuffle(ops)
        ops = [o[0] for o in ops]
        body.append(f"  order r in {r}..{r + 1} {{ steady m {{ {' '.join(ops)} }} U }}")
    time = f"  time s {{ F = {rng.randint(1, 5)} + s % 2  I = {rng.randint(1, 5)}  W = {rng.randint(1, 5)}  send = {rng.choice((0, 0, 1, 3))} }}"
    time += rng.choice(("", "\n  send eager"))
    return (f"schedule s(M = 1) {{\n  let P = {P}\n  ranks P\n  pipe net stages {P * V} mbs M place s -> {place}\n"
            + "\n".join(body) + f"\n{time}\n}}\n")


def eval_place(place, s, P):
    if "?" in place:
        return s if s < P else 2 * P - 1 - s
    return eval(place, {}, {"s": s, "P": P})


def order(rng, r, P, Q):
    """The order of rank r of P stages, and what the schedule has to require: one of several forms."""
    wrong = rng.random() < 0.25  # a bound or a lag that is off by one, somewhere
    off = lambda e: f"{e} + {rng.choice((-1, 1))}" if wrong and rng.random() < 0.4 else e
    lag = rng.choice((P - 1 - r, P - 1 - r, P, 2 * (P - 1 - r), P - r))
    N = f"M*{Q}" if Q > 1 else "M"
    f = f"F(k/{Q}, k%{Q})" if Q > 1 else "F(k)"
    b = f"B(k/{Q}, {Q - 1} - k%{Q})" if Q > 1 else "B(k)"
    at = lambda op, e: op.replace("k", f"({e})")
    form = rng.randrange(9)
    if form == 0:  # all forwards, then all backwards
        return f"do k in 0..{off(N)} {{ {f} }} do k in 0..{off(N)} {{ {b} }} U"
    if form == 1:  # the same without indices
        return f"do {off(N)} {{ F }} do {N} {{ B }} U"
    if form == 2:  # warmup, pairs, flush
        return f"let w = min({N}, {off(str(lag))}) do w {{ F }} do {N} - w {{ F B }} do w {{ B }} U"
    if form == 3:  # one loop with choices at its ends
        w = lag
        return f"do k in 0..{N} + {w} {{ if k < {off(N)} {{ {f} }} if k >= {w} {{ {at(b, f'k - {w}')} }} }} U"
    if form == 4 and Q == 1:  # I and W apart
        w = rng.randint(0, P)
        return f"do {N} {{ F }} clip {{ do k in 0..{N} + {w} {{ I(k) W(k - {off(str(w))}) }} }} U"
    if form == 5 and Q == 1:  # updates in rounds
        n = rng.choice((2, 3))
        return (f"steady k {{ F(k) B(k - {lag}) if (k - {lag}) % {n} == {n - 1} {{ U(k - {off(str(lag))}) }} }} "
                f"if M % {n} != 0 {{ U }}")
    if form == 6 and Q == 1:  # by stamps, with a gap after every other microbatch
        return f"clock k {{ F(k) @ 4*k + k/2*3  B(k) @ 4*k + k/2*3 + {4 * lag + 1} + {4 * lag}/2 }} U"
    if form == 7 and Q == 1:  # recomputed
        return f"do {N} {{ F }} do k in {N} - 1..-1 step -1 {{ R(k) B(k) }} U"
    if form == 8:  # actions
        return f"let w = min({N}, {off(str(lag + 1))}) do w {{ F }} do k in 0..{N} - w {{ overlap {{ F B }} }} do w {{ B }} U"
    return f"op f(k) = {f} op b(k) = {b} steady k in 0..{N} {{ f(k) b(k - {lag + Q - 1}) }} U"


def numbered(rng):
    """Rounds of n microbatches, whose ops say by number which versions of the weights they read, right or too new or
    of too short a ring; some with R, with I and W, and with lines that hold for some microbatches or stages only."""
    P, n = rng.randint(1, 3), rng.choice((1, 2, 3, 4))
    number = lambda: f"max(m/{n} - {rng.choice((0, 1, 1, 2, 3))}, 0)"
    when = lambda op: (f"{op} reads newest when {rng.choice((f'm < {rng.randint(1, 9)}', f's == {rng.randrange(P)}', f'm % {n} == 0'))}  "
                       if rng.random() < 0.2 else "")
    ring = f"  versions {rng.choice(('', '', 's + '))}{rng.randint(1, 4)}" if rng.random() < 0.6 else ""
    split, again = rng.random() < 0.3, rng.random() < 0.3
    back = "I(m - w) W(m - w)" if split else "B(m - w)"
    if split and rng.random() < 0.4:  # some of them whole
        back = f"if (m - w) % {n} == 0 {{ B(m - w) }} else {{ {back} }}"
    ops = f"F(m) {'R(m - w) ' if again else ''}{back}"
    lines = [when("F") + f"F reads {number()}", f"B reads {rng.choice(('F', 'F', 'newest', number()))}"]
    if split and rng.random() < 0.6:
        lines.append(when("I") + f"I reads {rng.choice(('F', 'newest', number()))}")
    if again and rng.random() < 0.5:
        lines.append(f"R reads {rng.choice(('F', 'newest', number()))}")
    return (f"schedule s(M = 6) {{\n  ranks {P}\n  pipe net stages {P} mbs M place s -> s\n"
            f"  order r {{ let w = {P - 1} - r steady m {{ {ops} if (m - w) % {n} == {n - 1} {{ U(m - w) }} }} "
            f"if M % {n} != 0 {{ U }} }}\n  weights s, m {{ {'  '.join(lines)}{ring} }}\n}}\n")


def copies(rng):
    """Stashes that go and come back, of all microbatches or some; right, or a LOAD too late, or an OFF without one."""
    P, lag = rng.randint(1, 3), rng.randint(0, 4)
    some = rng.choice(("", "", "", "if k % 2 == 0", "if k % 3 != 1", "if k > 2", "if k < M - 3", "if k < M/2"))
    also = some if rng.random() < 0.9 else ""
    off = lambda k: f"{some.replace('k', f'({k})', 1)} {{ OFF({k}) }}" if some else f"OFF({k})"
    load = lambda k: f"{also.replace('k', f'({k})', 1)} {{ LOAD({k}) }}" if also else f"LOAD({k})"
    early = rng.choice((-1, 0, 1, 1, 2))
    form = rng.randrange(6)
    if form == 5:  # in loops of their own
        body = f"do M {{ F }} do k in 0..M {{ {off('k')} }} do k in M-1..-1 step -1 {{ {load('k')} }} do k in 0..M {{ B(k) }} U"
    elif form == 0:
        body = f"do k in 0..M {{ F(k) {off('k')} }} do k in 0..M {{ {load('k')} B(k) }} U"
    elif form == 1:
        body = f"do k in 0..M {{ F(k) {off('k')} }} do k in M-1..-1 step -1 {{ {load('k')} B(k) }} U"
    elif form == 2:  # brought back `early` before the backward
        body = (f"clip {{ do k in 0..M + {lag + 3} {{ F(k) {off(f'k - {max(0, lag - 1)}')} {load(f'k - {lag + 1 - early}')} "
                f"B(k - {lag + 1}) }} }} U")
    elif form == 3:  # between I and W
        body = f"do M {{ F }} clip {{ do k in 0..M + {lag + 1} {{ I(k) {off('k')} {load(f'k - {lag}')} W(k - {lag + 1 - rng.choice((0, 0, 1))}) }} }} U"
    else:
        body = f"steady k {{ F(k) OFF(k - {rng.choice((0, 0, 1))}) LOAD(k - {lag + 1}) B(k - {max(0, lag + early)}) }} U"
    again = "  recompute s, m when m % 5 == 4\n" if rng.random() < 0.15 else ""
    return (f"schedule s(M = 6) {{\n  ranks {P}\n  pipe net stages {P} mbs M place s -> s\n{again}"
            f"  time {{ F = 2  B = 4  OFF = 1  LOAD = {rng.choice((0, 1, 3))} }}\n  order r {{ {body} }}\n}}\n")


def loops(rng):
    """Each rank has loops of one of the forms, or each rank its own."""
    P, Q = rng.randint(1, 3), rng.choice((1, 1, 1, 2))
    same = rng.random() < 0.7  # all ranks have one form
    state = rng.getstate()
    body = []
    for r in range(P):
        if same and r:
            inner = random.Random()
            inner.setstate(state)
        else:
            inner = rng
        body.append(f"  order r in {r}..{r + 1} {{ {order(inner, r, P, Q)} }}")
    by = rng.choice((1, 1, 1, 2, 3))
    require = f" requires M % {by} == 0" if by > 1 else ""
    slices = f" slices {Q}" if Q > 1 else ""
    if rng.random() < 0.3:  # what is sent holds up the rank, or leaves before the end of its action
        body.append(f"  send {rng.choice(('next', 'next', 'eager'))}\n  time {{ F = 2  B = 3  send = {rng.choice((0, 1, 4))} }}")
    return (f"schedule s(M = 6){require} {{\n  ranks {P}\n  pipe net stages {P} mbs M{slices} place s -> s\n"
            + "\n".join(body) + "\n}\n")

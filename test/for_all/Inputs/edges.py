# SPDX-License-Identifier: MIT
"""Random schedules by rules that are not the same all the way. Priorities and conditions of the first and the
last microbatches are others, by a lot; the last ones are listed in another order; actions hold updates and ops without index; stages
are several first ones, or dealt over ranks; costs are unequal."""


def key(rng, slope, first, last, far):
    """A priority that moves on by `slope`, but at either end."""
    base = f"{slope}*m + {rng.randint(-8, 12)}"
    if rng.random() < 0.25:
        base = f"(m < {first} ? {rng.randint(-50, 300)} : {base})"
    if rng.random() < 0.45:
        end = rng.choice((f"{slope}*m - {far}", f"{slope}*m + {far}", f"{slope}*(M - {far})", f"{slope}*M + {rng.randint(-9, 9)}"))
        base = f"(m >= M - {max(last, 1)} ? {end} : {base})"
    return base


def condition(rng, kind, of, most, first, last):
    op, count = ("<", rng.randint(2, most)) if kind == "F" else (rng.choice(("<", ">=", "==", "!=")), rng.randint(1, 4))
    r = rng.random()
    if r < 0.2:
        count = f"(m >= M - {max(last, 1)} ? {rng.choice((0, 3, 5, 9))} : {count})"
    elif r < 0.3:
        count = f"(m < {first} ? {rng.randint(0, 6)} : {count})"
    return f" when inflight({of}) {op} {count}"


def several(rng):
    """One to three ranks with one to three stages each: a chain, or any graph."""
    c, P = rng.randint, rng.choice((1, 1, 2, 2, 3))
    V = c(1, 3) if P < 3 else c(1, 2)
    split, graph = rng.random() < 0.35, rng.random() < 0.3
    slope, far, first, last = rng.choice((0, 1, 1, 2, 4, 6)), c(40, 220), c(0, 3), rng.choice((0, 1, 1, 2, 3))
    one = lambda: key(rng, slope, first, last, far)
    chunk = lambda k: f"[{k}]" if V > 1 else ""
    when = lambda k, kind: condition(rng, kind, f"r, {k}" if V > 1 else "r", V * P + 3, first, last)
    back, body = "I" if split else "B", []
    for k in range(V):
        for kind in ("F", "I", "W") if split else ("F", "B"):
            op = f"{kind}{chunk(k)}(m)"
            some = when(k, kind) if kind == "F" or rng.random() < 0.05 else ""
            own = "" if kind == "W" and rng.random() < 0.5 else f" @ {one()}"
            if last and rng.random() < 0.15:
                body += [f"if m < M - {last} {{ {op}{own}{some} }}", f"if m >= M - {last} {{ {op} @ {one()}{rng.choice(('', when(k, kind)))} }}"]
            else:
                body.append(op + own + some)
    for _ in range(rng.choice((0, 1, 1, 2))):
        a, b = chunk(c(0, V - 1)), chunk(c(0, V - 1))
        ops = rng.choice((f"F{a}(m)  {back}{b}", f"F{a}  {back}{b}(m)", f"F{a}  {back}{b}", f"F{a}(m)  F{b}",
                          f"W  F{a}(m)" if split else f"F{a}(m)  {back}{b}", f"U{a}  {back}{b}(m)", f"{back}{b}(m)  U{a}"))
        body.append(f"overlap {{ {ops} }} @ {one()}" + (when(0, "F") if rng.random() < 0.8 else ""))
        if last and rng.random() < 0.3:
            body[-1] = f"if m {rng.choice(('<', '>='))} M - {last} {{ {body[-1]} }}"
    end = "U"
    if rng.random() < 0.25:
        end = ""
        body += [rng.choice((f"U{chunk(k)}(m) @ {one()}", f"if m == {rng.choice(('0', 'M-1'))} {{ U{chunk(k)} @ {c(-300, 300)} }}"))
                 for k in range(V)]
    rng.shuffle(body)
    index = "m"
    if last > 1 and rng.random() < 0.4:  # the last ones backwards
        index, body = "i", [f"let m = i < M - {last} ? i : 2*M - {last + 1} - i", *body]
    edges = "".join(f"  edge {i} -> {k}\n" for k in range(P * V) for i in range(k) if rng.random() < 0.35) if graph else ""
    slow = f"s == {c(0, P * V - 1)} ? {c(1, 60)} : " if rng.random() < 0.4 else ""
    time = f"F = {slow}{c(1, 12)}  " + (f"I = {c(1, 9)}  W = {c(1, 9)}" if split else f"B = {slow}{c(1, 20)}  FB = {c(1, 20)}")
    return (f"schedule s(P = {P}, M = 12) requires M >= {4 + first + last} {{\n  ranks P\n  pipe net {'dag ' if graph else ''}stages {P * V} "
            f"mbs M place s -> s % {P}\n{edges}  time s {{ {time}  send = {c(0, 6)}  U = {c(0, 3)} }}\n"
            f"  order r {{ rules {index} {{\n    " + "\n    ".join(body) + f"\n  }} {end} }}\n}}\n")


def dealt(rng):
    """The first stage is dealt over two or three ranks by microbatch; a rank may be a loop."""
    c, n, turn = rng.randint, rng.choice((2, 2, 3)), rng.choice((1, 1, 2))
    P = n + c(0, 2)
    slope, far, first, last = c(0, 3), c(40, 200), c(1, 3), c(1, 3)
    text = (f"schedule s(P = {P}, M = 24) requires M >= 12 && M % {n * turn} == 0 {{\n  ranks P\n  pipe net stages {1 + P - n} mbs M "
            f"place s, m -> s == 0 ? m/{turn} % {n} : {n - 1} + s\n"
            f"  time s {{ F = {c(1, 40)}  B = {c(1, 20)}  FB = {c(1, 20)}  send = {c(0, 6)} }}\n")
    if rng.random() < 0.3:
        text += f"  recompute s, m when {rng.choice(('m > 2', 'm % 2 == 0', 'm < M - 2', 's == 0'))}\n"
    for r in range(P):
        own = f"if m/{turn} % {n} == {r} " if r < n else ""
        one = lambda: key(rng, slope, first, last, far)
        ops = [f"F(m) @ {one()} when inflight(r) < {c(1, 5)}", f"B(m) @ {one()}"]
        if rng.random() < 0.2:
            ops.append(f"overlap {{ F(m)  B }} @ {one()} when inflight(r) < {c(2, 6)}")
        rng.shuffle(ops)
        body = "rules m { " + " ".join(f"{own}{{ {op} }}" if own else op for op in ops) + " }"
        text += f"  order r in {r}..{r + 1} {{ {body if own or rng.random() < 0.7 else 'do m in 0..M { F(m)  B(m) }'} U }}\n"
    return text + "}\n"

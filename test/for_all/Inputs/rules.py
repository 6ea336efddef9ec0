# SPDX-License-Identifier: MIT
"""Random schedules by rules, or whose orders are made of those of others (use), most of them near ones that people write."""


def used(rng):
    """A schedule whose order is made of those of others."""
    P, c, n = rng.randint(1, 3), rng.randint(1, 3), rng.choice((1, 2, 3, 4))
    split = rng.random() < 0.4
    b = (lambda m="": f"I{m} W{m}") if split else (lambda m="": f"B{m}")
    w = "do M { I } do M { W }" if split else "do M { B }"
    orders = {
        "onef": f"if M >= P {{ do P - r {{ F }} do M - (P - r) {{ {b()} F }} do P - r {{ {b()} }} }} else {{ do M {{ F }} {w} }} U",
        "kern": f"clip steady m {{ F(m) {b('(m - (P-1-r))')} }}",
        "all": f"do M {{ F }} {w} U",
        "ticks": "clock m period 4 { F(m) @ r  " + ("I(m) @ 2*P + 1 - r  W(m) @ 2*P + 4*P + 2 - r }" if split else "B(m) @ 2*P + 1 - r }"),
        "credit": "rules m { F(m) @ 2*m when inflight(r) < P - r + 1  " + ("I(m) @ 2*m + 1  W(m) }" if split else "B(m) @ 2*m + 1 }"),
    }
    near = "min(P - r, M)"
    orders["labels"] = f"warmup {{ do {near} {{ F }} }} steady {{ do M - {near} {{ {b()} F }} }} flush {{ do {near} {{ {b()} }} }} U"
    name = lambda *of: rng.choice(of or ("onef", "onef", "kern", "all", "ticks", "credit"))
    loops = lambda: name("onef", "onef", "kern", "all", "ticks")
    form, off = rng.randrange(9), rng.choice((0, 0, 0, 0, 1, -1))
    require = ""
    if form == 0:
        body, require = f"use {name()}(P, M - {c}) use {loops()}(P, {c}) @ M - {c + off} U", f"requires M > {c} "
    elif form == 1:
        body, require = f"do k in 0..M/{n} {{ use {loops()}(P, {n}) @ {n}*k }} U", f"requires M % {n} == 0 "
    elif form == 2:
        body = f"use {loops()}(P, M) in 0..{c} use {name()}(P, M) in {c + off}..M U"
    elif form == 3:
        body = f"clip {{ use {name()}(P, M + {c}) @ {off - c} }} U"
    elif form == 4:
        body = f"rules i in 0..1 {{ use {name('credit', 'ticks')}(P, M) }} U"
    elif form == 5:
        body, require = f"clock i in 0..M/{n} period {8 * P + 4 * n + rng.randint(0, 9)} {{ use ticks(P, {n}) @ i*{n} }} U", f"requires M % {n} == 0 "
    elif form == 7:
        body = "flush { use labels(P, M) } U"
    elif form == 6:
        body, require = f"use {loops()}(P, {c}) do M - {c + off} {{ F }} {w.replace('M', f'M - {c}')} U", f"requires M > {c} "
    else:
        inner = rng.choice((f"if k % 2 == 1 {{ use {loops()}(P, {n}) @ {n}*k }} else {{ use {loops()}(P, M) in {n}*k..{n}*k + {n} }}",
                            f"use {loops()}(P, M) in {n}*k..{n}*(k+1)", f"let h = {n}*k use {loops()}(M = {n}, P = P) @ h"))
        body, require = f"do k in 0..M/{n} {{ {inner} }} U", f"requires M % {n} == 0 "
    some = "".join(f"schedule {k}(P = 2, M = 4) {{\n  ranks P\n  pipe net stages P mbs M place s -> s\n  order r {{ {v} }}\n}}\n"
                   for k, v in orders.items())
    time = "" if rng.random() < 0.5 else f"  time {{ F = {rng.randint(1, 9)}  " + ("I = 4  W = 3" if split else "B = 7") + "  send = 1 }\n"
    return some + f"schedule s(P = {P}, M = 12) {require}{{\n  ranks P\n  pipe net stages P mbs M place s -> s\n{time}  order r {{ {body} }}\n}}\n"


def with_M(rng):
    """One whose first or last microbatches have statements of their own, with priorities that contain M; all change at some c."""
    P, c = rng.randint(1, 2), rng.randint(30, 60)
    one = lambda: rng.choice((f"M - {c}", f"{c} - M", f"(m == 0 ? M - {c} : 0)", f"(m == M-1 ? {c} - M : 0)", f"(m < 2 ? {c} - M : -1)",
                              f"m - {c}", f"0 - m", "-1", "0", "1", "m", f"{c}", "m + M", f"{c} + m"))
    room = rng.choice(("P - r", "P - r + 1", "P + 2 - r"))
    some = lambda: f" when inflight(r) {rng.choice((f'< {room}', f'>= {rng.randint(1, 2)}', f'== {rng.randint(1, 2)}'))}" if rng.random() < 0.6 else ""
    k = rng.choice((1, 1, 2))
    body = []
    Q = 2 if rng.random() < 0.25 else 1
    ops = [("F(m)", f" when inflight(r) < {room}"), ("B(m)", "")]
    if Q > 1:  # each slice has its own
        ops = [("F(m, 0)", rng.choice((f" when inflight(r) < {Q} * ({room})", ""))), ("F(m, 1)", ""), ("B(m, 1)", ""), ("B(m, 0)", "")]
    for op, when in ops:
        plain = rng.choice(("@ 0", "@ 1", "@ 50", "@ m", "@ 2*m + 1", ""))
        first, last = rng.random() < 0.4, rng.random() < (0.6 if op in ("F(m)", "F(m, 0)") else 0.2)
        if first and last:
            inner = f"if m >= {k} && m < M-{k} {{ {op} {plain}{when} }}"
        else:
            inner = f"if m >= {k} {{ {op} {plain}{when} }}" if first else f"if m < M-{k} {{ {op} {plain}{when} }}" if last else f"{op} {plain or f'@ {one()}'}{when}"
        body.append(inner)
        body += [f"if m < {k} {{ {op} @ {one()}{some()} }}"] * first + [f"if m >= M-{k} {{ {op} @ {one()}{some()} }}"] * last
    rng.shuffle(body)
    end = "U"
    if rng.random() < 0.2:
        end = ""
        body.append(f"if m == {rng.choice(('0', 'M-1'))} {{ U @ {one()} }}")
    time = f"time {{ F = {rng.randint(1, 4)}  B = {rng.randint(1, 6)}  send = {rng.randint(0, 2)} }}"
    return (f"schedule s(P = {P}, M = 8) requires M >= 4 {{\n  ranks P\n  pipe net stages P mbs M{' slices 2' if Q > 1 else ''} place s -> s\n  {time}\n"
            f"  order r {{ rules m {{\n    " + "\n    ".join(body) + f"\n  }} {end} }}\n}}\n")


def rules(rng):
    """Slices, chunks, two pipes, joint actions, R, updates, weights, all in one."""
    P = rng.randint(1, 4)
    V = rng.choice((1, 1, 1, 2, 2)) if P > 1 else 1
    pipes = rng.random() < 0.12 and P % 2 == 0 and V == 1
    split = rng.random() < 0.45
    joint = not pipes and not split and rng.random() < 0.3
    Q = 2 if not pipes and not joint and rng.random() < 0.12 else 1
    again = not split and not pipes and not joint and Q == 1 and rng.random() < 0.2
    updates = not pipes and V == 1 and Q == 1 and rng.random() < 0.25
    c = lambda lo, hi: rng.randint(lo, hi)
    even = rng.random() < 0.3
    costs = [10 if even else c(1, 12) for _ in range(6)]
    slow = f"s == {c(0, P * V - 1)} ? {c(5, 30)} : " if rng.random() < 0.4 else ""
    time = f"time s {{ F = {slow}{costs[0]}  " + (
        f"I = {costs[1]}  W = {costs[2]}" if split else f"B = {slow}{costs[1] + costs[2]}  FB = {costs[0] + costs[1]}") + (
        f"  send = {c(0, 4)}  R = {costs[3]}  U = {costs[4]} }}")
    slope = rng.choice((0, 0, 1, 2, 2, 3)) if rng.random() < 0.92 else rng.choice((-1, -2))
    strange = rng.random() < 0.12  # two paces, ends that differ, conditions on m
    key = lambda more: f"@ {slope}*m + {more}" if slope else f"@ {more}"
    names = ["down.", "up."] if pipes else [""]
    body = []
    for p in names:
        for k in range(V):
            chunk = f"[{k}]" if V > 1 else ""
            arg = f"(r, {k})" if V > 1 else f"(r, {names.index(p)})" if pipes else "(r)"
            room = rng.choice((f"P - r + {c(0, 2)}", f"P + {c(0, 2)}", f"2*P + {c(0, 3)}", f"{c(P, 2 * P + 1)}"))
            guard = f" when inflight{arg} < {room}"
            if split and rng.random() < 0.7:
                guard += f" && held{arg} < {c(1, 3)}"
            if again and k == 0:
                guard = f" when inflight(r) + kept(r) < {room}"
            if rng.random() < 0.05:
                guard = ""
            if strange and rng.random() < 0.3:
                guard += (" && " if guard else " when ") + rng.choice(
                    ("(m < 4 || inflight(r) < 2*P)", "inflight(r) < max(1, min(P, M - m))", "inflight(r) <= M - m"))
            fkey = key(c(0, 6)) if not (strange and rng.random() < 0.3) else rng.choice(("@ m", "@ 3*m + 1", "@ 7", "@ m/2"))
            bkey = key(c(0, 6) if rng.random() < 0.4 else f"({P - 1} - r)*{c(0, 2)}")
            f = [f"{p}F{chunk}(m{', i' if Q > 1 else ''}) {fkey}{guard}"]
            back = "I" if split else "B"
            b = [f"{p}{back}{chunk}(m{f', {Q - 1} - i' if Q > 1 else ''}) {bkey}"]
            if Q > 1:
                f, b = [f"do i in 0..{Q} {{ {f[0]} }}"], [f"do i in 0..{Q} {{ {b[0]} }}"]
            if split:
                w = f"{p}W{chunk}(m{', i' if Q > 1 else ''})"
                w += "" if rng.random() < 0.7 else " " + key(c(0, 20))
                b.append(f"do i in 0..{Q} {{ {w} }}" if Q > 1 else w)
            if strange and rng.random() < 0.3:
                f = [f"if m % {c(2, 3)} == 0 {{ {f[0]} }} else {{ {p}F{chunk}(m{', i' if Q > 1 else ''}) {key(c(0, 4))}{guard} }}"] if Q == 1 else f
            if joint:
                other = f"[{V - 1 - k}]" if V > 1 else ""
                body.append(f"overlap {{ F{chunk}(m)  B{other} }} {key(0)}" + (guard if rng.random() < 0.6 else ""))
            if again and k == 0 and rng.random() < 0.8:
                body.append(f"if r < {P - 1} {{ R{chunk}(m) {key(c(0, 3))} when inflight(r) < {c(1, 3)} }}")
            body += f + b
    rng.shuffle(body)
    end = "U"
    if updates:
        end = ""
        body.append(f"U(m) {key(0)}")
        if rng.random() < 0.5:
            body[-1] = f"if m % {c(2, 3)} == 1 || m == M - 1 {{ U {key(0)} }}"
            body[-1] = f"U(m) {key(0)}"
    head, lo = "", ""
    if rng.random() < 0.15 and V == 1 and not pipes and Q == 1 and not joint:
        head, lo = f"do {c(1, 2)} {{ F }} ", "requires M >= 3 "
    weights = "  weights { F reads newest  B reads F }\n" if updates else ""
    some = f"  recompute s, m when s == 0 && m > {c(0, 3)}\n" if not again and Q == 1 and rng.random() < 0.1 else ""
    if pipes:
        shape = f"  pipe down stages {P} mbs M place s -> s\n  pipe up stages {P} mbs M place s -> {P - 1}-s replica of down\n"
    elif V > 1 and rng.random() < 0.5:
        shape = f"  pipe net stages {2 * P} mbs M place s -> s % {P}\n"
    else:
        shape = f"  pipe net stages {P * V} mbs M{' slices 2' if Q > 1 else ''} place s -> s < {P} ? s : {2 * P - 1}-s\n"
    send = f"  send {rng.choice(('eager', 'next'))}\n" if rng.random() < 0.3 else ""
    fixed = ""
    if not pipes and V == 1 and Q == 1 and not split and not updates and P > 1 and rng.random() < 0.12:
        fixed = f"  order r in {P - 1}..{P} {{ do m in 0..M {{ F(m)  B(m) }} U }}\n"
    orders = f"  order r in 0..{P - 1 if fixed else P} {{ {head}rules m {{\n    " + "\n    ".join(body) + f"\n  }} {end} }}\n{fixed}"
    return f"schedule s(P = {P}, M = 6) {lo}{{\n  ranks P\n{shape}  {time}\n{send}{weights}{some}{orders}}}\n"

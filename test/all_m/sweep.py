# SPDX-License-Identifier: MIT
# pipec --for-all=M against compiles at every M up to a bound: random orders, most of them near right.
#
#   sweep.py PIPEC SCRATCH [SEED [PROGRAMS]]
#
# Proved means that every M compiles; a deadlock for all large M that some M up to the bound does not, and that
# a larger one does not either; the steady state is the difference of makespans far from both ends.
import re

from campaign import compile_at, end, judge_all, run, values


def text(rng):
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
    time += rng.choice(("", "", "\n  send eager", "\n  send next"))
    return (f"schedule s(M = 1) {{\n  let P = {P}\n  ranks P\n  pipe net stages {P * V} mbs M place s -> {place}\n"
            + "\n".join(body) + f"\n{time}\n}}\n")


def eval_place(place, s, P):
    if "?" in place:
        return s if s < P else 2 * P - 1 - s
    return eval(place, {}, {"s": s, "P": P})


def ideal(path, M):
    return int(re.search(r'"ideal":(\d+)', run(path, f"-DM={M}", "--emit=json").stdout)[1])


def judge(path, source, where):
    good = compile_at(values(path, 1, 30))
    fine = [m in good for m in range(1, 31)]
    got = run(path, "--for-all=M", f"-DM={fine.index(True) + 1}") if True in fine else None
    if not got:
        return "wrong at every M"
    if "all M  " not in got.stdout:
        if "deadlock for all large M" not in got.stderr:
            return where + "neither proved nor refuted: " + got.stderr
        return "refuted" if not fine[29] and run(path, "--check", "-DM=61").returncode else where + "refuted, but M = 30 or 61 is fine"
    if got.returncode or "all M     proved" not in got.stdout:
        return where + "not decided: " + got.stdout
    if False in fine:
        return where + f"proved, but M = {fine.index(False) + 1} is refuted"
    m = re.search(r"^steady    (\d+) for (?:each|(\d+)) microbatch", got.stdout, re.M)
    time, per = int(m[1]), int(m[2] or 1)
    step = 12 * per
    if ideal(path, 200 + step) - ideal(path, 200) != 12 * time:
        return where + f"the steady state is not {time} for {per}"
    return "proved"


if __name__ == "__main__":
    found = judge_all("", text, judge, 60)
    print(", ".join(f"{found[v]} {v}" for v in ("proved", "refuted", "wrong at every M")))
    end(found)

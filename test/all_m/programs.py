# SPDX-License-Identifier: MIT
"""Looped programs against what pipec makes of each M: random orders of all generators of this folder, with what they
require, parameters that follow from M, and costs, sizes, copies and what is recomputed that depend on it.

usage: TEST.py PIPEC SCRATCH SEED PROGRAMS BOUND CC INCLUDE LIBPIPERUN HASHES [FAR ...]

For every M up to the bound, and some far ones, as far as the file says that it was tried: the looped program has one with the
parameters and the hash of the direct one, or both have none.
"""
import os
import random
import re
import subprocess
import sys

import edges
import lists
import rules
import sweep
from campaign import end, is_wrong, judge_all, run

bound, cc, include, library, hashes = int(sys.argv[5]), *sys.argv[6:10]
far = [int(v) for v in sys.argv[10:]]


def number(rng, names, depth=0):
    """An integer of the language: it may have no value for some M."""
    c = rng.randint
    r = rng.random()
    if depth > 3 or r < 0.3:
        return rng.choice((str(c(0, 9)), str(c(0, 60)), *names, "M", "M"))
    one = lambda: number(rng, names, depth + 1)
    if r < 0.5:
        return f"({one()} {rng.choice('+-*')} {one()})"
    if r < 0.7:
        by = c(1, 9) if rng.random() < 0.9 else f"({one()} - {c(0, 40)})"
        return f"({one()} {rng.choice('/%')} {by})"
    if r < 0.8:
        return f"{rng.choice(('min', 'max'))}({', '.join(one() for _ in range(c(1, 3)))})"
    if r < 0.9:
        return f"{rng.choice(('near', 'twice'))}({one()})" if rng.random() < 0.6 else f"far({one()}, {one()})"
    return f"({condition(rng, names, depth + 1)} ? {one()} : {one()})"


def condition(rng, names, depth=0):
    r = rng.random()
    if depth < 3 and r < 0.3:
        return f"({condition(rng, names, depth + 1)} {rng.choice(('&&', '||'))} {condition(rng, names, depth + 1)})"
    if depth < 3 and r < 0.4:
        return f"!{condition(rng, names, depth + 1)}"
    if r < 0.8:
        return f"(M {rng.choice(('!=', '<', '>', '>='))} {rng.randint(1, 150)})"
    return f"({number(rng, names, depth + 1)} {rng.choice(('<', '<=', '==', '!=', '>', '>='))} {number(rng, names, depth + 1)})"


def head(rng, source):
    """The same with more parameters and more that it requires; it may extend one that requires some."""
    m = list(re.finditer(r"schedule s\(([^)]*)\)(?: requires ([^{]*))? \{", source))[-1]
    names, params, require = [], m[1], [m[2].strip()] if m[2] else []
    for name in ("N", "K")[:rng.choice((0, 0, 1, 1, 2))]:
        params += f", {name} = {number(rng, names)}"
        names.append(name)
    require += [condition(rng, names) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
    base = ""
    extends = ""
    if rng.random() < 0.2:
        base = f"schedule base(A = 3, M = 9, D = A % 7) requires {condition(rng, ['A', 'D'])} {{\n}}\n"
        extends = f" extends base({rng.choice(('', number(rng, names), 'A = ' + number(rng, names)))})"
    functions = "fn near(x) = x % 5 + 1\nfn far(x, y) = near(x) > 3 ? y : near(near(x) + y)\nfn twice(x) = 2 * near(x)\n"
    text = f"schedule s({params}){extends}" + (f" requires {', '.join(require)}" if require else "") + " {"
    return functions + base + source[:m.start()] + text + source[m.end():]


def rest(rng):
    """What depends on M or on the microbatch beside the orders."""
    c = rng.randint
    return "".join(one for one, likely in (
        (f"  recompute s, m when {rng.choice((f'm > {c(2, 90)}', f'm % {c(2, 4)} == 0', f'm < M - {c(1, 9)}', f'm < M/{c(2, 4)}'))}\n", 0.1),
        (f"  offload s, m when {rng.choice((f'm > {c(2, 90)}', f'm % {c(2, 4)} == 0', f'm < M - {c(1, 9)}'))}\n", 0.08),
        (f"  bytes {{ act = {rng.choice(('1KB', '1KB * M', '1KB * (1 + M % 3)', 'min(M, 40) * 64'))}  boundary = 64  weight = 1KB }}\n", 0.15),
        (f"  exclusive a, b -> {rng.choice(('1', 'M % 2', f'M / {c(20, 90)}'))}\n", 0.05),
    ) if rng.random() < likely)


def text(rng):
    source = rng.choice((lists.text, lists.text, sweep.text, rules.text, edges.text))(rng)
    if "time" not in source and rng.random() < 0.2:
        source = source.rstrip()[:-1] + f"  time {{ F = {rng.choice(('M', '1 + M % 3', 'min(M, 30)', '3'))}  B = {rng.choice(('2', '1 + M / 50'))} }}\n}}\n"
    source = source.rstrip()[:-1] + rest(rng) + "}\n"
    return head(rng, source) if rng.random() < 0.7 else source


def direct(path, m):
    """As hashes.c prints it."""
    got = run(f"-DM={m}", "--emit=json", path)
    if got.returncode < 0:
        return f"{m} it dies: {got.stderr}"
    said = re.search(r'"params":"([^"]*)","hash":"([^"]*)"', got.stdout)
    return f"{m} {said[1]} {said[2]}" if said else f"{m} -"


def judge(path, source, where):
    table = path[:-5]
    got = run("--for-all=M", "--emit=c", "--symbol=looped", path, "-o", table + ".c")
    if got.returncode:
        if got.returncode < 0 or "internal error" in got.stderr:
            return where + f"it dies: {got.stderr}"
        return "none: " + (re.findall(r"\[([a-z-]+)\]$", got.stderr, re.M) or ["?"])[-1]
    built = subprocess.run([*cc.split(), "-std=c11", "-O0", "-w", "-shared", "-fPIC", "-I" + include, table + ".c", "-o", table + ".so"],
                           capture_output=True, text=True)
    if built.returncode:
        return where + f"it does not compile: {built.stderr}"
    with open(table + ".c") as f:
        first = f.readline()
    rng = random.Random(source)
    most = int((re.search(r"tried up to (\d+)", first) or [0, 1 << 40])[1])
    values = [*range(1, min(bound, 48) + 1), *rng.sample(range(49, max(49, bound + 1)), max(0, min(40, bound - 48)))]
    values += [v + rng.randint(0, 9) for v in far if rng.random() < 0.15]
    values = [v for v in values if v <= most]
    lacks = re.findall(r"(\d+) \[", (re.search(r"but not for(.*?)[.;]", first) or ["", ""])[1])
    have = subprocess.run([hashes, table + ".so", "1", "0", *map(str, values)], capture_output=True, text=True)
    os.remove(table + ".so")
    if have.returncode:
        return where + f"it does not unroll: {have.stderr}"
    some = 0
    for m, line in zip(values, have.stdout.splitlines(), strict=True):
        want = direct(path, m)
        none = re.match(r"\d+ -", line)
        if (none and not want.endswith(" -") and str(m) not in lacks and "too many" not in first) or (not none and line != want):
            return where + f"it has {line}, and pipec {want}"
        some += not none
    return ("tried" if "tried up to" in first else "equal") + (", asking what is required" if "that the schedule admits" in first else "") if some else "no value"


if __name__ == "__main__":
    found = judge_all("programs", text, judge, 60)
    for v, n in sorted(found.items(), key=lambda p: -p[1]):
        if not is_wrong(v):
            print(n, v)
    end(found)

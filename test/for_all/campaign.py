# SPDX-License-Identifier: MIT
"""Random schedules under --for-all=M, held against compiles of M one by one.

usage: campaign.py PIPEC SCRATCH SEED EACH BOUND CC INCLUDE LIBPIPERUN HASHES [FORM ...]

Draws EACH schedules of each form, most of them near right. Of one for which pipec writes a program for every M, that is, proves
it: every admitted M up to BOUND, and far ones, must compile; and the program, unrolled for some M, must have the parameters and
the hash of what pipec makes of this M, and pass the validator and the timed machine for others far beyond. The program must have
no M that the schedule does not admit. Of one that is refuted at an M: this M must be refused, and no smaller one. Prints a line for
each form, and what is wrong. The text may make another program of an M only beyond what --for-all=M says is compared; such a
schedule counts as one that ends.
"""
import collections
import concurrent.futures
import csv
import os
import random
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
import edges  # noqa: E402
import orders  # noqa: E402
import rules  # noqa: E402

pipec, scratch = sys.argv[1:3]
seed, each, bound = map(int, sys.argv[3:6])
cc, include, library, hashes = sys.argv[6:10]
ADMITTED = ("", "async")  # what --compare says of an M that compiles; asynchronous ones have no place in a comparison


def run(*args):
    return subprocess.run([pipec, "--lowering=global", *args], capture_output=True, text=True)


# ---- what depends on M ----


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
        return f"(M {rng.choice(('!=', '<', '>', '>='))} {rng.randint(1, 40)})"
    return f"({number(rng, names, depth + 1)} {rng.choice(('<', '<=', '==', '!=', '>', '>='))} {number(rng, names, depth + 1)})"


def required(rng):
    """A schedule with more parameters and requirements; it may extend one that has some."""
    source = rng.choice((orders.kernels, orders.loops))(rng)
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


def beside(rng):
    """What depends on M, or on the microbatch, beside the orders."""
    c = rng.randint
    source = rng.choice((orders.kernels, orders.loops, rules.with_M))(rng).rstrip()[:-1]
    if "time" not in source and rng.random() < 0.3:
        source += f"  time {{ F = {rng.choice(('M', '1 + M % 3', 'min(M, 30)', '3'))}  B = {rng.choice(('2', '1 + M / 50'))} }}\n"
    return source + "".join(rng.choice(some) for some, likely in (
        ((f"  recompute s, m when m > {c(2, 90)}\n", f"  recompute s, m when m % {c(2, 4)} == 0\n",
          f"  recompute s, m when m < M - {c(1, 9)}\n", f"  recompute s, m when m < M/{c(2, 4)}\n"), 0.35),
        ((f"  offload s, m when m > {c(2, 90)}\n", f"  offload s, m when m % {c(2, 4)} == 0\n",
          f"  offload s, m when m < M - {c(1, 9)}\n"), 0.35),
        ([f"  bytes {{ act = {act}  boundary = 64  weight = 1kB }}\n" for act in ("1kB", "1kB * M", "1kB * (1 + M % 3)", "min(M, 40) * 64")],
         0.3),
        ([f"  exclusive a, b -> {link}\n" for link in ("1", "M % 2", f"M / {c(20, 90)}")], 0.15),
    ) if rng.random() < likely) + "}\n"


FORMS = {"kernels": orders.kernels, "loops": orders.loops, "numbered": orders.numbered, "copies": orders.copies, "rules": rules.rules,
         "used": rules.used, "with M": rules.with_M, "several": edges.several, "dealt": edges.dealt, "required": required, "beside": beside}


# ---- what comes of it ----


def refusals(path, lo, hi):
    """Of each M that the schedule admits: "" or why it does not compile."""
    rows = csv.DictReader(run("--compare", path, f"-DM={lo}..{hi}", "--emit=csv").stdout.splitlines())
    return {int(re.search(r"\bM=(\d+)", row["params"])[1]): row["refused"]
            for row in rows if row["params"] and row["refused"] != "requires"}


def direct(path, m):
    """As hashes.c prints it."""
    said = re.search(r'"params":"([^"]*)","hash":"([^"]*)"', run(f"-DM={m}", "--emit=json", path).stdout)
    return f"{m} {said[1]} {said[2]}" if said else f"{m} -"


def unrolled(path, values):
    """What hashes.c prints of each of the values, of the program for every M; None: why not."""
    table = path[:-5]
    built = subprocess.run([*cc.split(), "-O0", "-w", "-shared", "-fPIC", "-I" + include, table + ".c", "-o", table + ".so"],
                           capture_output=True, text=True)
    if built.returncode:
        return None, built.stderr
    have = subprocess.run([hashes, table + ".so", "1", "0", *map(str, values)], capture_output=True, text=True)
    os.remove(table + ".so")
    return (None, have.stderr) if have.returncode else (have.stdout.splitlines(), "")


def judge_refuted(path, said, have):
    at, first = int(said[2]), not said[1]
    if refusals(path, at, at).get(at, "") in ADMITTED:
        return f"WRONG: refuted at {at}, which is fine"
    smaller = [m for m, why in (have if at <= bound else refusals(path, 1, at - 1)).items() if m < at and why not in ADMITTED]
    return f"WRONG: refuted at {at}, and so is {smaller[0]}" if first and smaller else "refuted"


def judge_proved(path, source, have):
    wrong = [m for m, why in have.items() if why not in ADMITTED]
    if wrong:
        return f"WRONG: proved, but M = {wrong[0]} is refused: {have[wrong[0]]}"
    with open(path[:-5] + ".c") as f:
        head = f.readline()
    classes = [(int(a), int(b)) for a, b in re.findall(r"(\d+) \+ (\d+) n", head)]
    start = max(a for a, _ in classes)
    rng = random.Random(source)
    far = [m for m in (rng.randint(start, start + 3 * bound), rng.randint(300, 800)) if m > bound]
    values = sorted({*range(1, 7), *rng.sample(range(7, bound + 1), 6), start, start + 1}) + far
    lines, why = unrolled(path, values + [rng.randint(1500, 4000) for _ in range(4)])
    if lines is None:
        return f"WRONG: no program for every M: {why}"
    invalid = [line for line in lines if re.match(r"\d+ wrong", line)]
    if invalid:
        return f"WRONG: proved, but M = {invalid[0]}"
    for m, have_m in zip(values, lines):
        none = re.match(r"\d+ -", have_m)
        want = direct(path, m)
        if want.endswith(" -") if none else want == have_m:
            continue
        if none and m < start and not any(m >= a and (m - a) % b == 0 for a, b in classes):
            continue  # the program has no room for all small ones
        compared = re.search(r"^compared .* M = (\d+)$", run("--for-all=M", "--undecided=ok", f"-DM={start}", path).stdout, re.M)
        if compared and m > int(compared[1]):
            return "ends"
        return f"WRONG: the program has {have_m}, and pipec {want}"
    return "proved"


def judge(case):
    """(form, what came of it, the file)"""
    form, n, source = case
    path = os.path.join(scratch, f"{form.replace(' ', '_')}{n}.pipe")
    with open(path, "w") as f:
        f.write(source)
    have = refusals(path, 1, bound)
    fine = [m for m, why in have.items() if why in ADMITTED]
    if not fine:
        return form, "wrong at every M", path
    got = run("--for-all=M", f"-DM={fine[0]}", "--emit=c", "--symbol=looped", path, "-o", path[:-5] + ".c")
    if got.returncode < 0 or "internal error" in got.stderr:
        return form, "WRONG: it dies: " + got.stderr, path
    said = re.search(r"there is no program for every M: (.*) \[looped\]$", got.stderr, re.M)
    if said is None:
        return form, judge_proved(path, source, have), path
    refuted = re.match(r"it is refuted(, first found)? at M = (\d+)", said[1])
    if refuted:
        return form, judge_refuted(path, refuted, have), path
    return form, "not decided: " + re.sub(r"\d+", "N", said[1]), path


def main():
    os.makedirs(scratch, exist_ok=True)
    rng = random.Random(seed)
    chosen = sys.argv[10:] or list(FORMS)
    cases = [(form, n, FORMS[form](rng)) for form in chosen for n in range(each)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        all_of = list(pool.map(judge, cases))
    for form in chosen:
        count = collections.Counter(what.split(":")[0] for name, what, _ in all_of if name == form)
        print(f"{form}: {count['proved']} proved, {count['refuted']} refuted, {count['not decided']} not decided, "
              f"{count['ends']} end, {count['wrong at every M']} wrong")
    if os.environ.get("SHOW"):
        for why, n in collections.Counter(what for _, what, _ in all_of if what.startswith("not")).most_common():
            print(n, why)
    wrong = [(path, what) for _, what, path in all_of if what.startswith("WRONG")]
    for path, what in wrong:
        print(f"seed {seed}, {path}: {what}")
    sys.exit(bool(wrong))


main()

# SPDX-License-Identifier: MIT
# Formulas over versions of the weights, a second time: random programs with random lines of `weights`, near where
# rounding decides. This script evaluates the text as lang/spec.md 5.14 says, and the tables that pipec writes as
# runtime/include/pipe_formula.h says, with the same numbers in place of arrays: both have the same bits at every op. So
# have `version`, `behind` and `ahead`, the estimate that an op shares and the states that a stage keeps. A formula that
# is no number is refused.
#
#   formulas.py PIPEC [--seed N] [--times N] [--break]
#
# --break: one number of the tables is another one, and it has to be found. Prints the seed.
import argparse
import collections
import ctypes
import ctypes.util
import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # nothing beside the sources

import versions

# ---- arithmetic ----

LIBM = ctypes.CDLL(ctypes.util.find_library("m"))  # what is not exact has the bits of the C library


def libm(name, n):
    f = getattr(LIBM, name)
    f.argtypes, f.restype = [ctypes.c_double] * n, ctypes.c_double
    return f


def over(a, b):
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def rounded(x):
    return ctypes.c_float(x).value


# Of each operation: how it is written, and what it does with numbers.
OPS = {
    "NEG": ("-", lambda a: -a), "NOT": ("!", lambda a: float(a == 0)), "ABS": ("abs", abs),
    "SQRT": ("sqrt", libm("sqrt", 1)), "EXP": ("exp", libm("exp", 1)), "LOG": ("log", libm("log", 1)),
    "FLOOR": ("floor", libm("floor", 1)), "ADD": ("+", lambda a, b: a + b), "SUB": ("-", lambda a, b: a - b),
    "MUL": ("*", lambda a, b: a * b), "DIV": ("/", over), "POW": ("pow", libm("pow", 2)),
    "MIN": ("min", lambda a, b: a if a < b else b), "MAX": ("max", lambda a, b: a if a > b else b),
    "LT": ("<", lambda a, b: float(a < b)), "LE": ("<=", lambda a, b: float(a <= b)),
    "GT": (">", lambda a, b: float(a > b)), "GE": (">=", lambda a, b: float(a >= b)),
    "EQ": ("==", lambda a, b: float(a == b)), "NE": ("!=", lambda a, b: float(a != b)),
    "AND": ("&&", lambda a, b: float(a != 0 and b != 0)), "OR": ("||", lambda a, b: float(a != 0 or b != 0)),
    "COND": ("?", lambda c, a, b: a if c != 0 else b),
}
OPERANDS = {op: f.__code__.co_argcount if hasattr(f, "__code__") else len(getattr(f, "argtypes", "1"))
            for op, (_, f) in OPS.items()}

# known: when the program is compiled. names: the arrays that it depends on
Value = collections.namedtuple("Value", "number known array names")
NOTHING = frozenset()


class Refused(Exception):
    pass


def known(number):
    if not math.isfinite(number):
        raise Refused
    return Value(float(number), True, False, NOTHING)


def compute(op, *x):
    """Of values, or of a table's numbers: in double; once one of them is an array, in float."""
    array = any(v.array for v in x)
    number = OPS[op][1](*(rounded(v.number) if array else v.number for v in x))
    if all(v.known for v in x):
        return known(number)
    return Value(rounded(number) if array else number, False, array, NOTHING.union(*(v.names for v in x)))


# ---- a formula: a name or a number, or (operation, operand, ..) ----

def text(e):
    if isinstance(e, str):
        return e
    op, x = e[0], [text(a) for a in e[1:]]
    if op == "SUM":
        return f"sum({', '.join(x)})"
    if op == "MOD":
        return f"({x[0]} % {x[1]})"
    if op == "COND":
        return f"({x[0]} ? {x[1]} : {x[2]})"
    symbol = OPS[op][0]
    if symbol.isalpha():
        return f"{symbol}({', '.join(x)})"
    return f"({x[0]} {symbol} {x[1]})" if len(x) == 2 else f"{symbol}({x[0]})"


def of_two(op, a, b):
    """Leaves out what has no effect."""
    def is_(v, number):
        return v.known and v.number == number
    if op == "DIV" and is_(b, 0):
        raise Refused
    if a.known and b.known:
        return compute(op, a, b)
    if (op == "MUL" and (is_(a, 0) or is_(b, 0))) or (op == "DIV" and is_(a, 0)):
        return known(0)
    if op == "POW" and (is_(a, 1) or is_(b, 0)):
        return known(1)
    if (op == "MUL" and is_(a, 1)) or (op == "ADD" and is_(a, 0)):
        return b
    if (op in ("MUL", "DIV", "POW") and is_(b, 1)) or (op in ("ADD", "SUB") and is_(b, 0)):
        return a
    return compute(op, a, b)


def value(e, at):
    if isinstance(e, str):
        return at[e] if e in at else known(float(e))
    op = e[0]
    if op == "MOD":
        return known(int(value(e[1], at).number) % int(value(e[2], at).number))
    if op == "SUM":
        total = known(0)
        for j in range(int(value(e[2], at).number), int(value(e[3], at).number)):
            total = of_two("ADD", total, value(e[4], {**at, e[1]: known(j)}))
        return total
    x = value(e[1], at)
    if op == "COND":
        if x.known:
            return value(e[2] if x.number != 0 else e[3], at)
        a, b = value(e[2], at), value(e[3], at)
        same = a.known and b.known and (a.number, math.copysign(1, a.number)) == (b.number, math.copysign(1, b.number))
        return a if same else compute("COND", x, a, b)
    if op in ("AND", "OR") and x.known and (x.number != 0) == (op == "OR"):
        return known(op == "OR")
    if len(e) == 2:
        return compute(op, x)
    for other in e[2:]:
        x = of_two(op, x, value(other, at))
    return x


NUMBERS = "0 1 2 3 0.1 0.3 0.7 1.1 8 7 0.5 -1 P s delay behind m".split()
ARRAYS = {"reads": "w v v2 q p", "applies": "w g v v2 q p", "q": "w old v q p", "p": "w old v q p", "rate": "lr k"}


def formula(depth, rng, leaf):
    """Of this depth at most, of random operations on what leaf() gives."""
    def sub():
        return formula(depth - 1, rng, leaf)

    if depth == 0 or rng.random() < 0.12:
        return leaf()
    kind = rng.randrange(18)
    if kind < 9:
        return (rng.choice(("MUL", "MUL", "MUL", "DIV", "DIV", "SUB", "SUB", "ADD", "ADD")), sub(), sub())
    if kind == 9:
        return (rng.choice(("MIN", "MAX")), sub(), sub(), sub())
    if kind == 10:
        return (rng.choice(("ABS", "FLOOR", "SQRT", "LOG", "EXP")), sub())
    if kind == 11:
        return (rng.choice(("EXP", "FLOOR")), ("DIV", sub(), rng.choice(("0.1", "0.3", "1.1", "0.7", "30000000"))))
    if kind == 12:
        return ("POW", sub(), rng.choice(("0", "1", "2", "-1", "0.5", sub())))
    if kind == 13:
        return ("COND", (rng.choice(("LT", "GT", "LE", "GE", "EQ", "NE")), sub(), sub()), sub(), sub())
    if kind == 14:
        return (rng.choice(("AND", "OR")), sub(), sub())
    if kind == 15:
        j = f"j{depth}"
        return ("SUM", j, rng.choice(("0", "-1")), rng.choice(("3", "P")), ("ADD", ("MUL", sub(), j), sub()))
    if kind == 16:
        return ("MOD", ("ADD", rng.choice("sP"), "3"), rng.choice("7P"))
    return (rng.choice(("NEG", "NOT")), sub())


# ---- a program ----

Line = collections.namedtuple("Line", "source formula per")  # per: text and function of (s, m), or None


class Case(versions.Case):
    """lines: (op, text, Line, condition as text, as function); updates: (word or state, formula, condition, ..)."""
    def __init__(self, rng):
        super().__init__(rng)
        self.ring, self.sizes, self.lines, self.updates = None, False, [], []

    def read(self, op, line, condition=(None, None)):
        per = f" per {line.per[0]}" if line.per else ""
        self.lines.append((op, f"{line.source} as {text(line.formula)}{per}", line) + condition)
        return self

    def update(self, word, tree, condition=(None, None)):
        self.updates.append((word, tree) + condition)
        return self

    def text(self):
        lines = "    state q\n    state p\n"
        for word, tree, when, _ in self.updates:
            word = word if word in ("applies", "rate") else f"then {word} ="
            lines += f"    U {word} {text(tree)}" + (f" when {when}" if when else "") + "\n"
        return super().text().replace("  weights s, m {\n", "  weights s, m {\n" + lines)

    def update_line(self, word, s, m):
        return next((l for l in self.updates if l[0] == word and (l[3] is None or l[3](s, m))), None)


def random_case(rng):
    case = Case(rng)

    def tree(word):
        special = ["lr", "k", "ahead" if word == "reads" else "n"]
        names = NUMBERS, NUMBERS, special, ARRAYS[word].split(), ARRAYS[word].split()
        return formula(rng.choice((2, 3, 3, 4)), rng, lambda: rng.choice(rng.choice(names)))

    for op in 2 * ("F" + ("I" if case.split and rng.random() < 0.5 else "B") + "R" * case.again):
        per = rng.choice((None, None, None, ("m/2", lambda s, m: m // 2), ("m % 3", lambda s, m: m % 3)))
        source = "F" if op != "F" and rng.random() < 0.3 else "newest"
        if rng.random() < 0.6 and all(l[3] for l in case.lines if l[0] == op):  # nothing is behind one that holds always
            case.read(op, Line(source, tree("reads"), per), case.condition(rng))
    for word in ("applies", "rate", "q", "p"):
        case.update(word, tree(word), case.condition(rng))
    return case


def fixed(word, tree):
    case = Case(random.Random(1))
    case.split = case.again = False
    for state in ("q", "p"):
        case.update(state, "0.5")
    return case.read("B", Line("newest", tree, None)) if word == "reads" else case.update(word, tree)


# 12 * 1.375 / 1.1 is just below 15 in double, and 15 in float; 24 * 1.375 / 0.3 just below 110 in float, and 110 in
# double.
FIFTEEN = ("DIV", ("MUL", "w", "12"), "1.1")
FIXED = [fixed(*line) for line in (
    ("reads", ("ADD", "w", ("FLOOR", FIFTEEN))),
    ("reads", ("SUB", "w", ("FLOOR", ("NEG", ("DIV", ("MUL", "w", "24"), "0.3"))))),
    ("reads", ("COND", ("LT", FIFTEEN, "15"), "w", ("MUL", "1000", "w"))),
    ("reads", ("MUL", "w", ("FLOOR", ("DIV", "16.5", "1.1")))),
    ("reads", ("MUL", "w", ("FLOOR", ("SUB", ("DIV", ("ADD", ("MUL", "w", "s"), "16.5"), "1.1"), ("MUL", "0.1", "s"))))),
    ("reads", ("SUB", ("ADD", ("MUL", "w", "0.1"), "30000"), "30000")),
    ("applies", ("COND", ("EQ", ("MUL", ("DIV", ("MUL", "g", "20"), "1.1"), "11"), ("MUL", "g", "200")), "g", ("MUL", "1000", "g"))),
    ("rate", ("FLOOR", ("DIV", ("MUL", ("ADD", "lr", "2"), "12"), "1.1"))),
    ("applies", ("ADD", "g", ("SQRT", ("SUB", "g", "1")))),
)]
SHARED = fixed("rate", "1")  # many estimates, each of two microbatches
SHARED.P, SHARED.M, SHARED.N = 4, 96, 2
FIXED.append(SHARED.read("F", Line("newest", ("SUB", "w", ("MUL", "ahead", "v")), ("m/2", lambda s, m: m // 2))))


# ---- what the text says ----

class Row:
    """An op of a list: what it reads, and how far it is from others."""
    def __init__(self, op, maker):
        self.op, self.line, self.maker = op, None, maker  # maker: whose estimate it reads; itself, if no other's
        self.version, self.behind, self.ahead = None, 0, 0
        self.mb, self.n = op.mb, 0  # of an update: the microbatch of its last gradient, and their number


def carry_out(case, s):
    """The rows of a rank, and the delay of its stage."""
    rows, first, newest, late, delay, applies = [], {}, 0, 0, 0, []
    for i, op in enumerate(case.order(s)):
        row = Row(op, i)
        rows.append(row)
        same = [x for x in rows if x.op.mb == op.mb and x.op.kind in "FBIR"]
        if op.kind == "U":
            newest += 1
            row.version, row.behind, row.mb, row.n = newest, late, applies[-1], len(applies)
            late, applies = 0, []
        elif op.kind != "W":
            rule = case.rule(op.kind, s, op.mb)
            row.line = rule and rule[2]
            row.version = same[0].version if row.line and row.line.source == "F" else newest
            if row.line and row.line.per:
                row.maker = first.setdefault((id(row.line), row.line.per[1](s, op.mb)), i)
                row.version = rows[row.maker].version
        if op.kind in "BIR":
            row.behind = row.version - same[0].version
        if op.kind in "BW":
            applies.append(op.mb)
            for x in same:
                x.ahead = newest - x.version
            late, delay = max(late, same[0].ahead), max(delay, same[0].ahead)
    return rows, delay


def samples(rng):
    """Numbers for what is known only at run time; the first are those at which rounding decides."""
    runs = [dict(w=1.375, old=-0.75, g=0.625, v=0.3125, v2=2.25, q=0.25, p=0.375, lr=0.0625, k=7.0)]
    for _ in range(3):
        run = {name: rounded(rng.uniform(-3, 3)) for name in ("w", "old", "g", "v", "v2", "q", "p")}
        runs.append(dict(run, lr=rng.uniform(0, 1), k=float(rng.randint(0, 5))))
    return [{name: Value(number, False, name not in ("lr", "k"), frozenset(() if name in ("lr", "k") else (name,)))
             for name, number in run.items()} for run in runs]


class Said:
    """The values of all lines of a stage, as the text has them: a list of one value for each sample."""
    def __init__(self, case, s, runs):
        self.rows, delay = carry_out(case, s)
        self.states = set()  # those that the stage keeps
        self.values = {}

        def say(i, word):
            row = self.rows[i]
            line = row.line if word == "reads" else case.update_line(word, s, row.mb)
            if not line:
                return
            numbers = dict(s=s, m=row.mb, P=case.P, delay=delay, behind=row.behind, ahead=row.ahead, n=row.n)
            at = {name: known(number) for name, number in numbers.items()}
            self.values[i, word] = [value(line[1], dict(at, **run)) for run in runs]
            result = self.values[i, word][0]
            if result.known and not math.isfinite(rounded(result.number)):
                raise Refused
            self.states |= result.names & {"q", "p"}

        updates = [i for i, row in enumerate(self.rows) if row.op.kind == "U"]
        for i, row in enumerate(self.rows):
            if row.maker == i and row.line:
                say(i, "reads")
        for i, word in itertools.product(updates, ("applies", "rate")):
            say(i, word)
        before = None
        while before != self.states:
            before = set(self.states)
            for i, state in itertools.product(updates, sorted(before)):
                say(i, state)


# ---- what the tables say ----

class Tables:
    def __init__(self, program, c):
        self.program = json.loads(program)
        self.formulas = [[(op, int(arg), float(v)) for op, arg, v in re.findall(r"\{PIPE_TERM_(\w+), (\d+), (\S+)\}", terms)]
                         for terms in re.findall(r"PipeTerm formula\d+\[\] = \{(.*?)\n\};", c, re.S)]

    def result(self, row, run):
        stack = []
        for op, arg, number in self.formulas[row]:
            if op == "CONST":
                stack.append(Value(number, False, False, NOTHING))
            elif op == "REAL":
                stack.append(run[("lr", "k")[arg]])
            elif op == "ELEM":
                stack.append(run[("w", "old", "g", "v", "v2", "q", "p")[arg]])
            else:
                n = OPERANDS[op]
                stack[-n:] = [compute(op, *stack[-n:])]
        assert len(stack) == 1
        return stack[0]


def equal(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


def compare(tables, row, want, runs, nothing):
    """Does row of the formulas, or None, give these values? nothing: what there is without a formula: a name, or 1."""
    for i, run in enumerate(runs):
        got = tables.result(row, run) if row is not None else run[nothing] if nothing else known(1)
        if want is None:
            if row is not None:
                return False
            continue
        array = nothing != ""
        a, b = (rounded(got.number), rounded(want[i].number)) if array else (got.number, want[i].number)
        if not equal(a, b) or (row is not None and got.array != want[i].array):
            return False
    return True


def check_rank(tables, s, said, runs):
    """What disagrees, or None."""
    rank = tables.program["rank"][s]
    instr = [i for i in rank["instr"] if re.fullmatch(r"\d+[FBIWRU]\d*", i["op"])]
    if len(instr) != len(said.rows):
        return "other ops"
    pool = next(p for p in rank["pools"] if p["class"] == "weight")
    weight, guess = {pool["first"]: 0}, {}
    kept = set(tables.program["stages"][s].get("states", []))
    if kept != said.states:
        return f"the stage keeps {kept}, not {said.states}"
    for i, (c, row) in enumerate(zip(instr, said.rows)):
        if row.op.kind == "W":
            if "version" in c:
                return f"{c['op']} reads weights"
            continue
        if (c["version"], c["behind"], c["ahead"]) != (row.version, row.behind, row.ahead):
            return f"{c['op']}: version, behind, ahead are {(row.version, row.behind, row.ahead)}"
        if row.op.kind == "U":
            weight[c["into"]] = row.version
            guess[c.get("guess")] = None
            why = check_rule(tables, c, i, said, runs)
            if why:
                return f"{c['op']}: {why}"
            continue
        if row.maker != i and "formula" in instr[row.maker]:
            if "weight" in c or "formula" in c or guess.get(c.get("guess")) != row.maker:
                return f"{c['op']} does not share the estimate of {instr[row.maker]['op']}"
            continue
        if weight[c["weight"]] != row.version or ("formula" in c) != ("guess" in c):
            return f"{c['op']}: slots"
        guess[c.get("guess")] = i
        if not compare(tables, c.get("formula"), said.values.get((i, "reads")), runs, "w"):
            return f"{c['op']}: another estimate"
    return None


def check_rule(tables, c, i, said, runs):
    rule = tables.program["rules"][c["formula"]] if "formula" in c else {"then": []}
    if not compare(tables, rule.get("applies"), said.values.get((i, "applies")), runs, "g"):
        return "applies another gradient"
    if not compare(tables, rule.get("rate"), said.values.get((i, "rate")), runs, ""):
        return "another rate"
    want = [state for state in ("q", "p") if (i, state) in said.values]
    if [then["state"] for then in rule["then"]] != want:
        return f"sets other states than {want}"
    for then in rule["then"]:
        if not compare(tables, then["formula"], said.values[i, then["state"]], runs, then["state"]):
            return f"sets {then['state']} to another value"
    return None


# ---- mistakes ----

OTHER = {"ADD": "SUB", "SUB": "ADD", "MUL": "DIV", "DIV": "MUL", "MIN": "MAX", "MAX": "MIN", "LT": "GE", "GE": "LT",
         "GT": "LE", "LE": "GT", "EQ": "NE", "NE": "EQ", "AND": "OR", "OR": "AND", "EXP": "ABS", "NOT": "NEG", "NEG": "ABS"}


def mistake(tables, rng):
    """Changes one entry of the tables; says which kind of entry."""
    program, n = tables.program, len(tables.formulas)
    ops = [i for rank in program["rank"] for i in rank["instr"] if "version" in i]
    rules = program.get("rules", [])
    places = [(i, key, 1 << 20) for i in ops for key in ("version", "behind", "ahead")]
    places += [(i, "guess", 1 << 20) for i in ops if "guess" in i and "weight" not in i]
    places += [(i, "formula", len(rules) if "U" in i["op"] else n) for i in ops if "formula" in i]
    places += [(r, key, n) for r in rules for key in ("applies", "rate") if key in r]
    places += [(then, "formula", n) for r in rules for then in r["then"]]
    places += [(then, "state", 2) for r in rules for then in r["then"]]
    places += [(stage, "states", 2) for stage in program["stages"] if stage.get("states")]
    places += [(f, i, 7) for f in tables.formulas for i in range(len(f))]
    places = [(of, key, n) for of, key, n in places if n > 1]
    kind = rng.choice(sorted({key if isinstance(key, str) else "term" for _, key, _ in places}))
    of, key, n = rng.choice([p for p in places if p[1] == kind or (kind == "term" and not isinstance(p[1], str))])
    was = of[key]
    if kind == "term":
        op, arg, number = was
        of[key] = {"CONST": (op, arg, number * 1.25 + 1), "REAL": (op, 1 - arg, number), "ELEM": (op, (arg + 1) % n, number)}.get(
            op, (OTHER.get(op, op), arg, number))
    elif kind == "state":
        of[key] = "p" if was == "q" else "q"
    elif kind == "states":
        of[key] = was[1:]
    else:
        of[key] = (was + 1) % n
    return kind


# ---- one program ----

def run(pipec, path, emit):
    return subprocess.run([pipec, "--verify", "--emit=" + emit, path], capture_output=True, text=True, check=False)


def try_one(pipec, case, rng, folder, breaks):
    """accepted, refused or the kind of mistake; and what disagrees, or None."""
    path = os.path.join(folder, "one.pipe")
    with open(path, "w", encoding="utf-8") as f:
        f.write(case.text())
    done, runs = run(pipec, path, "json"), samples(rng)
    try:
        said = [Said(case, s, runs) for s in range(case.P)]
    except Refused:
        right = done.returncode == 1 and re.search(r"error: .*\[(formula|division)\]", done.stderr)
        return "refused", None if right else "a formula is no number, and accepted\n" + done.stderr
    if done.returncode != 0:
        return "accepted", done.stderr
    tables, what = Tables(done.stdout, run(pipec, path, "c").stdout), "accepted"
    if breaks:
        what = mistake(tables, rng)
    try:
        for s in range(case.P):
            why = check_rank(tables, s, said[s], runs)
            if why:
                return what, f"rank {s}: {why}"
    except (AssertionError, IndexError, KeyError, StopIteration) as e:
        return what, repr(e)
    return what, None


def main():
    args = argparse.ArgumentParser()
    args.add_argument("pipec")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--times", type=int, default=250)
    args.add_argument("--break", dest="breaks", action="store_true")
    args = args.parse_args()
    print("seed", args.seed, flush=True)
    rng, count, found = random.Random(args.seed), collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for case in itertools.chain(FIXED, (random_case(rng) for _ in range(args.times))):
            what, why = try_one(args.pipec, case, rng, folder, args.breaks)
            count[what] += 1
            found[what] += why is not None
            if why and what in ("accepted", "refused"):
                print(f"{what}, but {why}\n{case.text()}")
    wrong = found.pop("accepted", 0) + found.pop("refused", 0)
    for kind in sorted(found):
        print(f"{kind}: {found[kind]} of {count[kind]} found")
    print(f"{count['accepted']} accepted, {count['refused']} refused, {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: MIT
"""The lists that pipec --for-all=M --dump-after=check_all_m claims, against compiles at every M up to a bound.

usage of each: TEST.py PIPEC SCRATCH [SEED [PROGRAMS [BOUND]]]

Proved means that the lists that it claims for every M, expanded, are the orders that pipec makes of that M: at all of the
first ones, and at some far ones; and that those below them are right, too.
"""
import random
import re
import sys

from campaign import compile_at, end, is_wrong, judge_all, run, values

bound = int(sys.argv[5]) if len(sys.argv) > 5 else 30


def number(word, n, j):
    """12+2n-4j"""
    return sum(int(v) * {"": 1, "n": n, "j": j}[of] for v, of in re.findall(r"([+-]?\d+)([nj]?)", word))


def op_at(word, n, j):
    """'(3F12+2n' -> '(3F14'"""
    m = re.fullmatch(r"(\(?\d+[FBIWRU])([^;)]*)(\)?)", word)
    return m[1] + (str(number(m[2], n, j)) if m[2] else "") + m[3]


def expand(lists, M):
    """What each rank does at M; None: it is in no class."""
    for block in lists.strip().split("M = ")[1:]:
        first, *ranks = block.strip().splitlines()
        start, step = map(int, re.match(r"(\d+)\+(\d+)n", first).groups())
        if M < start or (M - start) % step:
            continue
        n = (M - start) // step
        out = []
        for line in ranks:
            words = line.split(": ", 1)[1]
            ops = []
            for turns, inner, one in re.findall(r"(\S+) times \{ (.*?) \}|(\S+)", words):
                if one:
                    ops += [";".join(op_at(w, n, 0) for w in one.split(";"))]
                else:
                    for j in range(number(turns, n, 0)):
                        ops += [";".join(op_at(w, n, j) for w in o.split(";")) for o in inner.split()]
            out.append(" ".join(ops))
        return out
    return None


def orders(path, M, slices, stages):
    """What pipec makes of M: the same text; None: it is refused. Units of each pipe, of so many stages, from 0."""
    got = run("--dump-after=versions", f"-DM={M}", path)
    if got.returncode:
        return None
    out = []
    for line in re.findall(r"^rank \d+: (.*)$", got.stdout, re.M):
        line = re.sub(r"\[\w+\] ", "", line)
        line = re.sub(r"[@>]\d+", "", line)
        if slices > 1:
            line = re.sub(r"(\d+[FBIWR])(\d+)\.(\d+)", lambda m: m[1] + str(int(m[2]) * slices + int(m[3])), line)
        if stages:
            line = re.sub(r"(\d+)([FBIWR])(\d+)", lambda m: m[1] + m[2] + str(int(m[3]) - (M if int(m[1]) >= stages else 0)), line)
        out.append(line)
    return out


def judge(path, source, where):
    have = values(path, 1, bound)
    fine = compile_at(have)
    if not fine:
        return "wrong at every M"
    P = re.findall(r"\(P = (\d)", source)[-1]
    verdict = run("--check", f"-DP={P}", path)
    if verdict.returncode < 0:
        return where + f"it dies: {verdict.stderr}"
    said = re.search(r"^all M +(.*)$", verdict.stdout, re.M)
    if not said:
        return "no verdict: " + (re.findall(r"\[[a-z-]+\]$", verdict.stderr, re.M) or ["?"])[-1]
    m = re.match(r"refuted at M = (\d+)", said[1])
    if m:
        at = int(m[1])
        return "refuted" if at not in fine and values(path, at, at)[at] else where + f"refuted at {at}, which is fine"
    if not said[1].startswith("proved complete"):
        return "not decided: " + re.sub(r".*decided: | \(\S*\)$| up to M = .*", "", said[1]).strip()
    got = run("--check", "--for-all=M", "--dump-after=check_all_m", f"-DM={fine[-1]}", path)
    if got.returncode < 0:
        return where + f"it dies: {got.stderr}"
    by = re.search(r"every multiple of (\d+)", said[1])
    wrong = [v for v in have if v not in fine and (not by or v % int(by[1]) == 0)]
    if wrong:
        return where + f"proved, but M = {wrong[0]} is refuted"
    start = int((re.search(r" from (\d+) on", said[1]) or [0, 1])[1])
    far = [start + random.Random(source).randint(0, 3 * bound) for _ in range(2)]
    behind = sorted({start + 1 + int(v) for v in re.findall(r"\b\d{2,3}\b", source) if 30 < int(v) < 300})
    far += behind[::max(1, len(behind) // 3)]  # what changes at some M
    for M in [*range(start, max(bound, start + 7)), *far]:
        if by and M % int(by[1]):
            continue
        slices, stages = 2 if "slices 2" in source else 1, int(P) if "replica" in source else 0
        want, claimed = orders(path, M, slices, stages), expand(got.stdout, M)
        if want is None or claimed != want:
            return where + f"at M = {M} it is not what is claimed:\n{claimed}\n{want}"
    return "proved"


def judge_lists(name, text):
    """Judges, prints what came of them, and exits."""
    found = judge_all(name, text, judge, 60)
    for v, n in sorted(found.items(), key=lambda p: -p[1]):
        if not is_wrong(v):
            print(n, v)
    end(found)

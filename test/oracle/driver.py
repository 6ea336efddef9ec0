# SPDX-License-Identifier: MIT
# How the oracle calls the compiler: a path or a text in, what pipec printed out. A crash of pipec
# is never an answer: it ends the test.
import re
import subprocess
import sys

ERROR = re.compile(r"^(?:[^\n:]*:\d+:\d+: )?error: (.*) \[([a-z0-9-]+)\]$", re.M)


class Pipec:
    def __init__(self, exe, stdlib, scratch):
        self.exe, self.stdlib, self.scratch, self.runs = exe, stdlib, scratch, 0

    def call(self, *args):
        """(exit status, standard output, standard error)"""
        self.runs += 1
        p = subprocess.run([self.exe, *args], capture_output=True, text=True, close_fds=False)
        if p.returncode not in (0, 1):
            sys.exit("pipec %s: status %d\n%s" % (" ".join(args), p.returncode, p.stderr))
        if p.returncode == 1 and not ERROR.search(p.stderr):
            sys.exit("pipec %s: fails without a diagnostic\n%s" % (" ".join(args), p.stderr))
        return p.returncode, p.stdout, p.stderr

    def ok(self, *args):
        status, out, err = self.call(*args)
        if status:
            sys.exit("pipec %s:\n%s" % (" ".join(args), err))
        return out

    def text(self, text, *args):
        path = self.scratch + ".pipe"
        with open(path, "w") as f:
            f.write(text)
        return self.call(path, *args)

    def file(self, name, emit, **params):
        """A schedule of the standard library."""
        return self.ok("%s/%s.pipe" % (self.stdlib, name), "--emit=" + emit,
                       *("-D%s=%d" % kv for kv in params.items()))


def errors(stderr):
    """[(name, message)]"""
    return [(name, text) for text, name in ERROR.findall(stderr)]


def csv(text):
    return [line.split(",") for line in text.splitlines()]


OP = re.compile(r"(\d+)([A-Z])(-?\d*)$")


def written(order, place, rank, rng):
    """Ops of one rank as .pipe text; rng: None, or chooses among the ways to write the same."""
    own = [s for s in range(len(place)) if place[s] == rank]
    out, i = [], 0
    while i < len(order):
        if isinstance(order[i], tuple):
            out.append("overlap { %s }" % written(order[i], place, rank, rng))
            i += 1
            continue
        s, kind, mb = OP.match(order[i]).groups()
        at = "[stage %s]" % s
        if rng and int(s) in own and rng.random() < 0.5:
            at = "[%d]" % own.index(int(s)) if len(own) > 1 or rng.random() < 0.5 else ""
        n = 1
        while mb and rng and i + n < len(order) and order[i + n] == "%s%s%d" % (s, kind, int(mb) + n):
            n += 1
        if n > 1 and rng.random() < 0.5:
            out.append("do m in %s..%d { %s%s(m) }" % (mb, int(mb) + n, kind, at))
        else:
            n = 1
            out.append(kind + at + ("(%s)" % mb if mb else ""))
        i += n
    return " ".join(out)


def pipe_text(nrank, place, nmb, orders, extra="", rng=None, auto_u=True):
    """A .pipe text. place: rank of each stage; orders: op texts per rank, with updates such as "3U";
    auto_u: U comes last where there is none."""
    rank = str(nrank - 1)
    for s in range(len(place) - 1, -1, -1):
        rank = "s == %d ? %d : %s" % (s, place[s], rank)
    lines = ["schedule t() {", "  ranks %d" % nrank,
             "  pipe net stages %d mbs %d place s -> %s" % (len(place), nmb, rank)]
    for r, order in enumerate(orders):
        u = "" if rng or not auto_u or any(o[-1] == "U" for o in order) else " U"
        lines.append("  order r in %d..%d { %s%s }" % (r, r + 1, written(order, place, r, rng), u))
    return "\n".join(lines + ([extra] if extra else []) + ["}"]) + "\n"

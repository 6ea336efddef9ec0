# SPDX-License-Identifier: MIT
# The orders of the library against their definitions, op by op: each definition is written out here as
# its source states it, as lists with counts and loops, and shares nothing with the .pipe files.
#
#   definitions.py PIPEC STDLIB [CSV]   CSV: PyTorch's literal of DualPipeV, 4 ranks and 10 microbatches
#
# Updates are left out. Prints how many schedules are equal; the first that is not ends it.
import re
import subprocess
import sys


def csv(text):
    one = r"\d+[FBIW]\d+"
    return [[c for c in l.split(",") if re.fullmatch(r"%s|\(%s;%s\)OVERLAP_F_B" % (one, one, one), c)]
            for l in text.splitlines()]


def op(stage, kind, mb):
    return "%d%s%d" % (stage, kind, mb)


def naive(P, M):
    return [[o for m in range(M) for o in (op(s, "F", m), op(s, "B", m))] for s in range(P)]


def gpipe_lifo(P, M):
    return [[op(s, "F", m) for m in range(M)] + [op(s, "B", m) for m in reversed(range(M))] for s in range(P)]


def warm_pairs(P, M, K):
    """K(s) forwards before the first backward, then backward and forward in turn."""
    orders = []
    for s in range(P):
        f = min(K(s), M)
        order = [op(s, "F", m) for m in range(f)]
        for b in range(M):
            order.append(op(s, "B", b))
            if f < M:
                order.append(op(s, "F", f))
                f += 1
        orders.append(order)
    return orders


def dapple_pb(P, M):
    return warm_pairs(P, M, lambda s: 2 * (P - s) - 1)


def varuna(P, M):
    """With even costs and 1F1B's stashes nothing but 1F1B is left."""
    return warm_pairs(P, M, lambda s: P - s)


def again(orders, wanted):
    """An R right before the first backward of what is recomputed."""
    parts = lambda o: re.fullmatch(r"(\d+)([FBIW])(\d+)", o).groups()
    return [[x for o in row for s, k, m in [parts(o)]
             for x in ([op(int(s), "R", int(m))] if k in "BI" and wanted(int(s), int(m)) else []) + [o]]
            for row in orders]


def zb_h2(P, M):
    """k = 2: k(P-s)-(k-1) forwards; per backward: I, a W once more than k*s are held, an F."""
    orders = []
    for s in range(P):
        f, w = min(2 * (P - s) - 1, M), 0
        order = [op(s, "F", m) for m in range(f)]
        for b in range(M):
            order.append(op(s, "I", b))
            if b + 1 - w > 2 * s:
                order.append(op(s, "W", w))
                w += 1
            if f < M:
                order.append(op(s, "F", f))
                f += 1
        orders.append(order + [op(s, "W", m) for m in range(w, M)])
    return orders


def unit(s, kind, m, q, Q):
    return op(s, kind, m) if Q == 1 else "%d%s%d.%d" % (s, kind, m, q)


def seq1f1b(P, M, Q):
    """P-s-2+Q slices first, then forward and backward in turn, then the other backwards: microbatches in
    order, in each the last slice first."""
    forward = [(m, q) for m in range(M) for q in range(Q)]
    backward = [(m, q) for m in range(M) for q in reversed(range(Q))]
    orders = []
    for s in range(P):
        warm = min(P - s - 2 + Q, M * Q)
        order = [unit(s, "F", *u, Q) for u in forward[:warm]]
        for i, u in enumerate(forward[warm:]):
            order += [unit(s, "F", *u, Q), unit(s, "B", *backward[i], Q)]
        orders.append(order + [unit(s, "B", *u, Q) for u in backward[M * Q - warm:]])
    return orders


def terapipe(P, M, Q):
    """All slices of all microbatches forward, then the mirror image."""
    units = [(m, q) for m in range(M) for q in range(Q)]
    return [[unit(s, "F", *u, Q) for u in units] + [unit(s, "B", *u, Q) for u in reversed(units)] for s in range(P)]


def looped_bfs(P, M, V):
    return [[op(c * P + r, "F", m) for c in range(V) for m in range(M)]
            + [op(c * P + r, "B", m) for c in reversed(range(V)) for m in reversed(range(M))] for r in range(P)]


def grouped(P, M, V, warm, delay):
    """Groups of P microbatches; warm(r) forwards, then forward, I, and the oldest W once delay(r)
    backwards have passed; the other W at the end."""
    table = [(c, m) for g in range(0, M, P) for c in range(V) for m in range(g, g + P)]
    n, orders = M * V, []
    for r in range(P):
        f = min(warm(r), n)
        order = [op(c * P + r, "F", m) for c, m in table[:f]]
        w = 0
        for i in range(n):
            if f < n:
                order.append(op(table[f][0] * P + r, "F", table[f][1]))
                f += 1
            c, m = table[i]
            order.append(op((V - 1 - c) * P + r, "I", m))
            if i + 1 > delay(r):
                c, m = table[w]
                order.append(op((V - 1 - c) * P + r, "W", m))
                w += 1
        orders.append(order + [op((V - 1 - c) * P + r, "W", m) for c, m in table[w:]])
    return orders


def interleaved_zb(P, M, V):
    return grouped(P, M, V, lambda r: (V - 1) * P + P - 1 - r, lambda r: r)


def gis(P, M, V):
    return grouped(P, M, V, lambda r: (V - 1) * P + P - 1 - r, lambda r: 0)


class Rank:
    """Takes the next microbatch of each kind on each chunk; W also the oldest I of the rank."""

    def __init__(self, r, P):
        self.stage = (r, 2 * P - 1 - r)
        self.next, self.held, self.order = {}, [], []

    def add(self, kind, chunk, n=1):
        for _ in range(n):
            key = ("F" if kind == "F" else "B", chunk)
            if kind == "W":
                chunk, m = self.held.pop(0)
            else:
                m = self.next[key] = self.next.get(key, -1) + 1
                if kind == "I":
                    self.held.append((chunk, m))
            self.order.append((self.stage[chunk], kind, m))

    def w(self, chunk):
        at = [c for c, _ in self.held].index(chunk)
        self.order.append((self.stage[chunk], "W", self.held.pop(at)[1]))


def zb_v(P, M):
    """Seven phases for max(M, 2P-1) microbatches, of which those from M on are dropped."""
    N, orders = max(M, 2 * P - 1), []
    for r in range(P):
        k = Rank(r, P)
        k.add("F", 0, 2 * (P - r) - 1)
        for _ in range(r):
            k.add("F", 1), k.add("F", 0)
        for _ in range(P - r):
            k.add("F", 1), k.add("I", 1), k.w(1)
        while k.next[("F", 1)] < N - 1:
            if k.next[("F", 0)] < N - 1:
                k.add("F", 0)
            k.add("I", 0), k.w(0), k.add("F", 1), k.add("I", 1), k.w(1)
        for _ in range(r):
            k.add("I", 0), k.add("I", 1)
        for _ in range(P - r):
            k.add("I", 0), k.w(0)
        for c in (1, 0):
            while c in [h for h, _ in k.held]:
                k.w(c)
        orders.append([op(*o) for o in k.order if o[2] < M])
    return orders


def eight_phases(k, half, i, n):
    """Of deepseek-ai/DualPipe: a half of `half` ranks, i-th from the outside, n microbatches through each
    end; chunk 0 is of the direction that enters at this half."""
    cells = []

    def add(*what):
        for kind, chunk in what:
            k.add(kind, chunk)
        ops = [op(*o) for o in k.order[-len(what):]]
        cells.append(ops[0] if len(ops) == 1 else "(%s)OVERLAP_F_B" % ";".join(ops))

    for _ in range(2 * (half - i - 1)):
        add(("F", 0))
    for _ in range(i + 1):
        add(("F", 0)), add(("F", 1))
    for _ in range(half - i - 1):
        add(("I", 1)), add(("W", None)), add(("F", 1))
    for turn in range(n - 2 * half + i + 1):
        if turn == 0 and i == half - 1:
            add(("F", 0)), add(("B", 1))
        else:
            add(("F", 0), ("B", 1))
        add(("F", 1), ("B", 0))
    for _ in range(half - i - 1):
        add(("B", 1)), add(("F", 1), ("B", 0))
    zero_bubble = False
    for turn in range(i + 1):
        zero_bubble |= turn == (i + 1) // 2 and i % 2 == 1
        add(("I" if zero_bubble else "B", 1))
        zero_bubble |= turn == (i + 1) // 2 and i % 2 == 0
        add(("I" if zero_bubble else "B", 0))
    for _ in range(half - i - 1):
        add(("W", None)), add(("I", 0))
    for _ in range(i + 1):
        add(("W", None))
    return cells


def dualpipev(P, M):
    return [eight_phases(Rank(r, P), P, r, M) for r in range(P)]


def dualpipe(P, M):
    """Stages and microbatches of the second direction are numbered on: rank r has P + P-1-r of it."""
    orders = []
    for r in range(P):
        k = Rank(r, P)
        near, far = (r, 2 * P - 1 - r)[::1 if r < P // 2 else -1], (0, M // 2)[::1 if r < P // 2 else -1]
        k.stage = near
        for chunk in (0, 1):
            k.next[("F", chunk)] = k.next[("B", chunk)] = far[chunk] - 1
        orders.append(eight_phases(k, P // 2, min(r, P - 1 - r), M // 2))
    return orders


def chimera_pairs(P, M):
    """Li and Hoefler's unit with twice the forwards in a slot, on M microbatches: (doubled, halved)."""
    orders = []
    for r in range(P):
        down, h = r < P // 2, P // 2
        a = h - r if down else r - h + 1
        b = h - a
        # (stage, first microbatch): of the rank's own pipe, of the other
        own, other = [(r, 0), (2 * P - 1 - r, M // 2)][::1 if down else -1]
        at, order = {}, []

        def add(kind, pipe, n=1):
            for _ in range(n):
                m = at[kind, pipe] = at.get((kind, pipe), -1) + 1
                order.append(op(pipe[0], kind, pipe[1] + m))

        for unit in range(M // (2 * P)):
            for _ in range(a):
                if unit:
                    add("B", own)
                add("F", own, 2)
            for _ in range(b):
                add("F", other, 2), add("F", own, 2)
            for _ in range(a):
                add("F", other, 2), add("B", other)
            for _ in range(b + h):
                add("B", own), add("B", other)
        for _ in range(a):
            add("B", own)
        orders.append(order)
    return orders


def chimera_doubling(P, M):
    return chimera_pairs(P, M)


def chimera_halving(P, M):
    return chimera_pairs(P, 2 * M)


def v_min(P, M):
    """Slots of the block plus 6m; each W in the first slot (mod 6) after its I that is free."""
    i, orders = 2 if P % 3 == 0 else 0, []
    for r in range(P):
        slots = {("F", 0): r, ("F", 1): 2 * P - 1 - r, ("I", 1): 2 * P + i + r, ("I", 0): 4 * P + i - 1 - r}
        for c in (1, 0):
            t = slots[("I", c)] + 1
            while t % 6 in [x % 6 for x in slots.values()]:
                t += 1
            slots[("W", c)] = t
        ops = [(t + 6 * m, (r, 2 * P - 1 - r)[c], kind, m) for (kind, c), t in slots.items() for m in range(M)]
        orders.append([op(*o[1:]) for o in sorted(ops)])
    return orders


def main(pipec, stdlib, literal=None):
    equal = 0

    def expanded(name, want, **define):
        """The same with R, which PyTorch's format does not have: read from the dump."""
        nonlocal equal
        done = subprocess.run([pipec, "--dump-after=expand", "%s/%s.pipe" % (stdlib, name)]
                              + ["-D%s=%d" % d for d in define.items()], capture_output=True, text=True)
        got = [re.findall(r"\b\d+[FBIWR][\d.]+", line.split(":", 1)[1])
               for line in done.stdout.splitlines() if line.startswith("rank ")]
        if got != want:
            sys.exit("%s %s:\n  %s\n  %s\n%s" % (name, define, got, want, done.stderr))
        equal += 1

    def compare(name, want, **define):
        nonlocal equal
        done = subprocess.run([pipec, "--emit=csv", "%s/%s.pipe" % (stdlib, name)]
                              + ["-D%s=%d" % d for d in define.items()], capture_output=True, text=True)
        got = csv(done.stdout)
        for r, (a, b) in enumerate(zip(got, want)):
            if a != b:
                sys.exit("%s %s rank %d:\n  %s\n  %s" % (name, define, r, " ".join(a), " ".join(b)))
        if len(got) != len(want):
            sys.exit("%s %s: %d ranks\n%s" % (name, define, len(got), done.stderr))
        equal += 1

    for P in () if literal else (1, 2, 3, 4, 5, 8):
        for M in (1, 2, 3, 4, 7, 8, 16, 17):
            for make in (naive, gpipe_lifo, dapple_pb, varuna, zb_h2, zb_v, v_min):
                compare(make.__name__, make(P, M), P=P, M=M)
            if M >= 2 * P:
                compare("dualpipev", dualpipev(P, M), P=P, M=M)
            for K in {0, 1, M // 2, M}:  # torchgpipe's always and except_last, and between
                expanded("gpipe_recompute", again(gpipe_lifo(P, M), lambda s, m: m < M - K), P=P, M=M, K=min(K, M))
            compare("inference", [[op(s, "F", m) for m in range(M)] for s in range(P)], P=P, M=M)
            for Q in (1, 2, 5):
                expanded("seq1f1b", seq1f1b(P, M, Q), P=P, M=M, Q=Q)
                expanded("terapipe", terapipe(P, M, Q), P=P, M=M, Q=Q)
            if M >= 2 * P and P % 2 == 0 and M % 2 == 0:
                compare("dualpipe", dualpipe(P, M), P=P, M=M)
            if P % 2 == 0:
                compare("chimera_doubling", chimera_doubling(P, 2 * P * M), P=P, M=2 * P * M)
                compare("chimera_halving", chimera_halving(P, P * M), P=P, M=P * M)
            for V in (1, 2, 3):
                for N in (1, V):
                    expanded("gis", again(gis(P, P * M, V), lambda s, m: s < N * P), P=P, M=P * M, V=V, N=N)
                compare("looped_bfs", looped_bfs(P, M, V), P=P, M=M, V=V)
                compare("interleaved_zb", interleaved_zb(P, P * M, V), P=P, M=P * M, V=V)
                compare("gis", gis(P, P * M, V), P=P, M=P * M, V=V)
    if literal:
        with open(literal) as f:
            compare("dualpipev", csv(f.read()), P=4, M=10)
    print("%d orders are equal" % equal)


main(*sys.argv[1:])

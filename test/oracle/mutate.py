# SPDX-License-Identifier: MIT
# Random schedules, mutations of them, and what must become of each, by brute force over the rules
# of lang/spec.md 5. `verdicts` compares: accept or refuse, the first diagnostic, the set of all, the
# ops that they name, and for an accepted program everything that machine.py checks. A disagreement
# is shrunk before it is printed.
#
# Waits of a finished program are changed too (`waits`): lost, one less, one more, for another stream,
# or moved to the next instruction. What a change breaks is found by reachability, not by clocks.
import copy
import re
import sys
import time

import clocks
import driver
import machine

OP = driver.OP


class Shape:
    """nrank, place (rank of each stage), nmb, orders (op texts per rank, updates included)."""

    def __init__(self, nrank, place, nmb, orders):
        self.nrank, self.place, self.nmb, self.orders = nrank, place, nmb, orders


def legal(rng, ranks=4, extra_stages=3, mbs=5, several=0.2, join=0):
    """A random legal schedule: ops are appended to their ranks in a random order that respects the
    data, so ranks need not be regular in any way. `several`: how often a stage is updated in between;
    `join`: how often ops that can all run are one action, a tuple in the order."""
    P = rng.randint(1, ranks)
    S = P + rng.randint(0, extra_stages) * (rng.random() < 0.5)
    place = list(range(P)) + [rng.randrange(P) for _ in range(S - P)]
    if rng.random() < 0.5:
        rng.shuffle(place)
    M = rng.randint(1, mbs)
    mode = rng.choice(("B", "I", "mixed"))
    split = {(s, m): mode == "I" or (mode == "mixed" and rng.random() < 0.5)
             for s in range(S) for m in range(M)}
    todo = {(s, k, m) for s in range(S) for m in range(M)
            for k in ("F",) + (("I", "W") if split[s, m] else ("B",))}
    weight = {"F": rng.choice((1, 1, 5)), "B": rng.choice((1, 5)),
              "I": rng.choice((1, 5)), "W": rng.choice((1, 1, 5))}
    fifo = rng.random() < 0.5
    done, orders = set(), [[] for _ in range(P)]
    left = {s: M for s in range(S)}

    def ready(s, k, m):
        back = lambda t: (t, "I" if split[t, m] else "B", m) in done
        if fifo and m and (s, k, m - 1) in todo:
            return False
        if k == "F":
            return s == 0 or (s - 1, "F", m) in done
        if k == "W":
            return (s, "I", m) in done
        return (s, "F", m) in done and (s == S - 1 or back(s + 1))

    while todo:
        can = sorted(o for o in todo if ready(*o))
        action = [rng.choices(can, [weight[o[1]] for o in can])[0]]
        if rng.random() < join:
            more = [o for o in can if place[o[0]] == place[action[0][0]] and o != action[0]]
            action += rng.sample(more, min(len(more), rng.choice((1, 1, 1, 2, 3))))
        todo.difference_update(action)
        done.update(action)
        names = tuple("%d%s%d" % o for o in action)
        orders[place[action[0][0]]].append(names if len(names) > 1 else names[0])
        graded = [s for s, k, _ in action if k in "BW"]
        for s in graded:
            left[s] -= 1
        for s in sorted({s for s, _, _ in action}):
            if left[s] > 0 and s in graded and rng.random() < several:
                orders[place[s]].append("%dU" % s)
            if not left[s] and rng.random() < 0.3:
                orders[place[s]].append("%dU" % s)
                left[s] = -1
    for s in range(S):
        if left[s] == 0:
            orders[place[s]].append("%dU" % s)
    if rng.random() < 0.4:  # recomputed: an R somewhere between F and the first backward
        share = rng.choice((0.3, 1))
        for s in range(S):
            for m in range(M):
                order = orders[place[s]]
                if rng.random() < share:
                    at = lambda name: next(i for i, o in enumerate(order) if name == o or name in tuple(o))
                    f = at("%dF%d" % (s, m))
                    b = at("%d%s%d" % (s, "I" if split[s, m] else "B", m))
                    again, i = "%dR%d" % (s, m), rng.randint(f + 1, b)
                    if i < b and not order[i][-1] == "U" and rng.random() < join:
                        order[i] = ((order[i],) if isinstance(order[i], str) else order[i]) + (again,)
                    else:
                        order.insert(i, again)
    return Shape(P, place, M, orders)


def unrelated(rng):
    """The ops of a legal schedule, but each rank in an order of its own that only keeps F, I, W and U
    of a stage in order: most of these deadlock."""
    t = legal(rng, several=0)
    for r, order in enumerate(t.orders):
        ops, placed = order[:], []
        rng.shuffle(ops)
        while ops:
            for o in ops:
                s, k, m = OP.match(o).groups()
                before = {"F": "", "R": "F", "B": "FR", "I": "FR", "W": "FI"}.get(k, "")
                alone = sum(OP.match(x).group(1) == s for x in ops) == 1
                if any(s + b + m in ops for b in before) or (k == "U" and not alone):
                    continue
                ops.remove(o)
                placed.append(o)
                break
        t.orders[r] = placed
    return t


def text(shape, rng, costs=False):
    extra = ""
    e = lambda most: "%d + s * %d %% %d" % (rng.randint(0, most), rng.randint(0, 7), rng.randint(1, 4))
    if costs and rng.random() < 0.8:
        free = lambda most: rng.choice(("0", e(9), e(most)))
        extra += "  time s { F = %s  I = %s  W = %s  R = %s  U = %s  send = %s%s }\n" % (
            free(9), free(9), e(9), free(9), e(3), free(40), "  FB = " + e(25) if rng.random() < 0.5 else "")
    if costs and rng.random() < 0.6:
        extra += "  send %s\n" % rng.choice(("eager", "end"))
    if costs and rng.random() < 0.6:
        keys = rng.sample(("act", "gout", "boundary", "weight", "grad", "opt", "work"), rng.randint(1, 7))
        extra += "  bytes s { %s }\n" % "  ".join("%s = %s" % (k, e(300)) for k in sorted(keys))
    return driver.pipe_text(shape.nrank, shape.place, shape.nmb, shape.orders, extra, rng)


# ---- mutations ----

def mutate(shape, rng):
    t = copy.deepcopy(shape)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        r = rng.randrange(t.nrank)
        o = t.orders[r]
        what = rng.choice(("swap", "swap", "near", "near", "drop", "again", "move",
                           "kind", "mb", "rank", "all", "none", "stage"))
        if what == "none" and rng.random() < 0.9:
            what = "near"
        if not o:
            continue
        i, j = rng.randrange(len(o)), rng.randrange(len(o))
        s, k, m = OP.match(o[i]).groups()
        if what == "swap":
            o[i], o[j] = o[j], o[i]
        elif what == "near" and i + 1 < len(o):
            o[i], o[i + 1] = o[i + 1], o[i]
        elif what == "drop":
            del o[i]
        elif what == "again":
            o.insert(j, o[i])
        elif what == "move":
            o.insert(j, o.pop(i))
        elif what == "kind" and m:
            o[i] = s + rng.choice("FBIWR") + m
        elif what == "mb" and m:
            o[i] = "%s%s%d" % (s, k, rng.choice((rng.randrange(t.nmb), t.nmb)))
        elif what == "stage":
            o[i] = "%d%s%s" % (rng.randint(0, len(t.place)), k, m)
        elif what == "rank":
            t.orders[rng.randrange(t.nrank)].insert(0, o.pop(i))
        elif what == "all" and rng.random() < 0.3:
            o[:] = [x for x in o if OP.match(x).group(2) != k]
        elif what == "none":
            o.clear()
    return t


# ---- mutations of waits ----

WAITS = ("lost", "one less", "one more", "for another stream", "moved")


def rows_of(form, r):
    """The rows of a rank, and its end of the step as the last one."""
    return form["rank"][r]["instr"] + [form["rank"][r]]


def with_own(form, r):
    """The form with a copy of rank r, which may be changed."""
    return dict(form, rank=[copy.deepcopy(rank) if q == r else rank for q, rank in enumerate(form["rank"])])


def each_wait(form):
    """(what, rank, row, number of its wait) for each change of a wait."""
    for r in range(len(form["rank"])):
        for i, row in enumerate(rows_of(form, r)):
            for k in range(len(row.get("waits", ()))):
                for what in WAITS:
                    yield what, r, i, k


def change_wait(form, what, r, i, k):
    """Changes wait k of row i of rank r; False: there is no such change."""
    rows = rows_of(form, r)
    waits = rows[i]["waits"]
    wait = waits[k]
    if what == "lost" or (what == "one less" and wait["count"] < 2):  # nothing is left to wait for
        del waits[k]
    elif what == "one less":
        wait["count"] -= 1
    elif what == "one more":
        wait["count"] += 1
    elif what == "for another stream":
        own = clocks.queue_of(rows[i]) if i + 1 < len(rows) else clocks.COMPUTE
        others = sorted({clocks.queue_of(row) for row in rows[:-1]} - {own, (wait["stream"], wait.get("channel"))}, key=str)
        if not others:
            return False
        stream, channel = others[0]
        waits[k] = {"stream": stream, "count": min(wait["count"] or 1, sum(clocks.queue_of(x) == others[0] for x in rows[:i]))}
        if channel is not None:
            waits[k]["channel"] = channel
        if waits[k]["count"] == 0:
            return False
    else:
        if i + 1 == len(rows):
            return False
        del waits[k]
        rows[i + 1].setdefault("waits", []).append(wait)
    return True


def mutate_wait(form, what, rng):
    """Changes a random wait so that it breaks something; False: none does."""
    p = machine.Program(copy.deepcopy(form))
    places = [x[1:] for x in each_wait(form) if x[0] == what]
    rng.shuffle(places)
    for r, i, k in places:
        t = with_own(form, r)
        if change_wait(t, what, r, i, k) and breaks(t, r, must_precede(p, r)):
            return change_wait(form, what, r, i, k)
    return False


def must_precede(p, r):
    """(above, row): the row above must be over when the row starts. Row -1: the start of the step; the
    row after the last one: its end."""
    end, users, pairs = len(p.lists[r]), {}, []
    for c in p.lists[r]:
        pairs += [(-1, c.index), (c.index, end)]
    for b in machine.uses_of(p, r):
        pairs += [(a.c.index, b.c.index) for a in users.get(b.slot, ()) if a.c is not b.c and (a.fills or b.fills)]
        users.setdefault(b.slot, []).append(b)
    return pairs


def breaks(form, r, pairs):
    """Whether the waits of rank r leave out one of the pairs, name what does not stand above, or stand inside
    of an action."""
    rows, queues = rows_of(form, r), {}
    over = []  # by row: the rows that are over when it starts
    for i, row in enumerate(rows):
        last = i + 1 == len(rows)
        at = clocks.COMPUTE if last else clocks.queue_of(row)
        if row.get("waits") and i and rows[i - 1].get("group"):
            return True
        direct = queues.get(at, [])[-1:] + ([-1] if at == clocks.COMPUTE else [])
        for wait in row.get("waits", ()):
            queue = queues.get((wait["stream"], wait.get("channel")), [])
            if wait["count"] > len(queue):
                return True
            direct.append(queue[wait["count"] - 1] if wait["count"] else -1)
        over.append(set(direct).union(*(over[j] for j in direct if j >= 0)))
        if not last:
            queues.setdefault(at, []).append(i)
    return any(a not in over[b] for a, b in pairs)


# ---- brute force ----

def brute(t):
    """[] if legal, else [(diagnostic, the op that it must name or None)] in order; with a deadlock,
    where each stuck rank is and what it needs on which rank."""
    S, faults, at = len(t.place), [], {}
    for r, order in enumerate(t.orders):
        fresh = {}  # by stage: whether a gradient has come since its last U
        for n, text_ in enumerate(order):
            s, k, m = OP.match(text_).groups()
            s, m = int(s), int(m) if m else None
            if s >= S or t.place[s] != r:
                faults.append(("foreign-op", None))
            elif m is not None and not 0 <= m < t.nmb:
                faults.append(("bad-index", None))
            elif k == "U" and (s not in fresh or fresh[s]):
                at.setdefault((s, k, m), []).append(n)
                fresh[s] = False
                continue
            elif (s, k, m) in at:
                faults.append(("duplicate-op", text_))
            elif any((s, o, m) in at for o in {"B": "IW", "I": "B", "W": "B"}.get(k, "")):
                faults.append(("mixed-backward", text_))
            else:
                at[s, k, m] = n
                if k in "BW":
                    fresh[s] = True
                continue
            break
        if not order:
            faults.append(("empty-rank", None))
    if faults:
        return faults
    for s in range(S):
        mbs, count = range(t.nmb), len(faults)
        back = {m: next((k for k in "BI" if (s, k, m) in at), None) for m in mbs}
        stray = any((s, "W", m) in at and not back[m] for m in mbs)  # W without I: it is I that lacks
        for kind, absent in (("F", [m for m in mbs if (s, "F", m) not in at]),
                             ("I" if stray else "B", [m for m in mbs if not back[m]]),
                             ("W", [m for m in mbs if back[m] == "I" and (s, "W", m) not in at])):
            if absent:
                faults.append(("missing-op", "%d%s%d" % (s, kind, absent[0])))
        if (s, "U", None) not in at:
            faults.append(("update", None))
        if len(faults) > count:
            continue
        for m in mbs:
            f, b, w = at[s, "F", m], at[s, back[m], m], at.get((s, "W", m))
            if b < f or (w is not None and w < b):
                faults.append(("op-order", None))
                break
            if not f < at.get((s, "R", m), (f + b) / 2) < b:
                faults.append(("recompute", "%dR%d" % (s, m)))
                break
            if max(b, w or 0) > at[s, "U", None][-1]:
                faults.append(("update", None))
                break
        else:
            if min(at[s, "W" if back[m] == "I" else "B", m] for m in mbs) > at[s, "U", None][0]:
                faults.append(("update", None))
    if faults:
        return faults
    # Nothing can go wrong any more but that orders wait for each other: run them.
    head, ended, moved = [0] * t.nrank, set(), True

    def waits(r):
        if head[r] == len(t.orders[r]):
            return None
        s, k, m = OP.match(t.orders[r][head[r]]).groups()
        n = int(s) + (-1 if k == "F" else 1)
        return (n, k == "F", m) if k in "FBI" and 0 <= n < S and (n, k == "F", m) not in ended else None

    while moved:
        moved = False
        for r in range(t.nrank):
            while head[r] < len(t.orders[r]) and not waits(r):
                s, k, m = OP.match(t.orders[r][head[r]]).groups()
                if k in "FBI":
                    ended.add((int(s), k == "F", m))
                head[r] += 1
                moved = True
    wait = {r: waits(r) for r in range(t.nrank) if waits(r)}
    if not wait:
        return []
    if any(t.place[n] == r for r, (n, _, _) in wait.items()):
        return [("op-order", None)]
    at_head = {r: t.orders[r][head[r]] for r in wait}
    needs = {r: (next("%d%s%s" % (n, k, m) for k in ("F" if f else "BI") if (n, k, int(m)) in at), t.place[n])
             for r, (n, f, m) in wait.items()}
    return [("deadlock", (at_head, needs))]


def cycles(needs):
    """The wait cycles of ranks that wait for each other; each rank waits for one."""
    found = set()
    for r in needs:
        path = []
        while r not in path:
            path.append(r)
            r = needs[r][1]
        found.add(frozenset(path[path.index(r):]))
    return found


NOTE = re.compile(r"note: rank (\d+) is at (\w+), which needs (\w+), "
                  r"(?:which rank (\d+) runs only after (\w+)|where rank (\d+) is)$", re.M)


def false_cycle(err, at_head, needs):
    """None if the message tells a shortest wait cycle, each hop of it as it is."""
    hops = [(int(r), x, y, int(q or p), z or y) for r, x, y, q, z, p in NOTE.findall(err)]
    if len(hops) != min(len(c) for c in cycles(needs)):
        return "not a shortest wait cycle: %s" % needs
    for i, (r, x, y, q, z) in enumerate(hops):
        if (x, (y, q), z) != (at_head[r], needs[r], at_head[q]) or q != hops[(i + 1) % len(hops)][0]:
            return "hop %d is false: %s" % (i, needs)
    return None


def disagree(c, t, rng, source=None):
    """None, or what differs."""
    source = source or text(t, rng)
    want = brute(t)
    status, out, err = c.text(source, "--emit=json")
    got = driver.errors(err)
    differ = "pipec: %s\nbrute force: %s" % (err or "accepts", want or "accepts")
    if bool(status) != bool(want) or [n for n, _ in got][:1] != [n for n, _ in want][:1]:
        return differ
    if len(got) > len(want) or (len(want) < 20 and {n for n, _ in got} != {n for n, _ in want}):
        return differ  # pipec reports the same slip of several stages once
    if want and want[0][0] == "deadlock":
        return false_cycle(err, *want[0][1]) and differ + false_cycle(err, *want[0][1])
    for name, message in got:
        ops = [op for n, op in want if n == name and op]
        if ops and not any(re.search(r"\b%s\b" % op, message) for op in ops):
            return "'%s' names none of %s" % (message, ops)
    if not want:
        try:
            machine.check(machine.Program(out), rng, rounds=1)
        except machine.Wrong as e:
            return "accepted, but %s" % e
    return None


def smaller(t):
    """Shapes with less in them."""
    for r in range(t.nrank):  # halves, then single ops
        n = len(t.orders[r])
        for width in (n // 2, 1):
            for i in range(0, n, width or 1):
                u = copy.deepcopy(t)
                del u.orders[r][i:i + (width or 1)]
                yield u
    if t.nmb > 1:
        u = copy.deepcopy(t)
        u.nmb -= 1
        u.orders = [[o for o in order if not o.endswith(str(u.nmb)) or o.endswith("U")] for order in u.orders]
        yield u
    if len(t.place) > 1 and t.place[-1] in t.place[:-1]:
        u = copy.deepcopy(t)
        s = len(u.place) - 1
        u.place.pop()
        u.orders = [[o for o in order if int(OP.match(o).group(1)) != s] for order in u.orders]
        yield u


def shrink(c, t, rng):
    found = True
    while found:
        found = False
        for u in smaller(t):
            if disagree(c, u, rng, plain_text(u)):
                t, found = u, True
                break
    return t


def plain_text(t):
    return driver.pipe_text(t.nrank, t.place, t.nmb, t.orders, auto_u=False)


def verdicts(c, rng, args):
    count, began, tally = args.count or 1500, time.time(), {}
    for _ in range(count):
        kind = rng.random()
        t = unrelated(rng) if kind < 0.2 else legal(rng) if kind < 0.25 else mutate(legal(rng), rng)
        source = text(t, rng)
        why = disagree(c, t, rng, source)
        if why:
            if disagree(c, t, rng, plain_text(t)):
                t = shrink(c, t, rng)
                source = plain_text(t)
                why = disagree(c, t, rng, source)
            sys.exit("%s\n%s" % (source, why))
        for name in {n for n, _ in brute(t)} or {"accepted"}:
            tally[name] = tally.get(name, 0) + 1
    print("verdicts: %d programs agree: %s" % (count, ", ".join("%s %d" % kv for kv in sorted(tally.items()))))
    absent = {"accepted", "foreign-op", "bad-index", "duplicate-op", "mixed-backward", "missing-op", "op-order",
              "update", "recompute", "deadlock"} - set(tally)
    if count >= 1000 and absent:
        sys.exit("never seen: %s" % ", ".join(sorted(absent)))
    print("%.1f s" % (time.time() - began), file=sys.stderr)

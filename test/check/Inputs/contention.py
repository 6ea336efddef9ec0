# SPDX-License-Identifier: MIT
# Shared links, played tick by tick: the instruction lists of --emit=json, with links that this file knows as
# functions of two ranks. Every start and end, how long each link is in use and how long transfers wait for
# links have to be those that pipec predicts.
#
#   contention.py PIPEC STDLIB SCRATCH SEED COUNT
# Seed 7 has to draw some of everything.
import json
import os
import random
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "channels"))
import grouped

pipec, stdlib, scratch, seed, count = sys.argv[1:]
print("seed", seed)
rng = random.Random(int(seed))
os.makedirs(scratch, exist_ok=True)

# Text of the expression, and the same in Python; what is negative is no link.
LINKS = [
    ("0", lambda a, b, n: 0),
    ("a / N == b / N ? -1 : a / N", lambda a, b, n: -1 if a // n == b // n else a // n),
    ("a / N == b / N ? -1 : b / N", lambda a, b, n: -1 if a // n == b // n else b // n),
    ("a / N == b / N ? a / N : -1", lambda a, b, n: a // n if a // n == b // n else -1),
    ("max(a, b) - min(a, b) - 1", lambda a, b, n: abs(a - b) - 1),
    ("(a + b) % N", lambda a, b, n: (a + b) % n),
    ("a % N", lambda a, b, n: a % n),
]
BASES = [("1f1b", 1), ("gpipe", 1), ("zb_h1", 1), ("interleaved", 2), ("zb_v", 2), ("chimera", 0), ("gems", 0), ("tied", 1)]


class Item:
    """An instruction; a transfer or sum knows its links and who else takes part."""

    def __init__(self, rank, pos, instr):
        self.rank, self.pos, self.instr = rank, pos, instr
        self.start = self.end = self.ready = self.posted = None
        self.meet = [self]

    def waits(self, stream):
        """How many instructions of another stream it waits for."""
        return max([w["count"] for w in self.instr.get("waits", ()) if w["stream"] == stream], default=0)


def play(program, links_of, time_of):
    ranks = program["rank"]
    items = [[Item(r["rank"], i, x) for i, x in enumerate(r["instr"])] for r in ranks]
    kind = lambda x: x.instr["op"].lstrip("0123456789").split("<")[0].split(">")[0].rstrip("0123456789.")
    comm = [[x for x in row if kind(x) in ("SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE", "TIE")] for row in items]
    compute = [[x for x in row if x not in set(comm[r])] for r, row in enumerate(items)]
    model = {s["stage"]: s for s in program["stages"]}
    # who meets whom
    other, sums = {}, {}
    for r, row in enumerate(comm):
        for n, x in enumerate(row):
            x.n = n
            st, mb, k = x.instr["stage"], x.instr.get("mb"), kind(x)
            if k in ("REDUCE", "TIE"):
                key = (k, model[st]["model"] if k == "REDUCE" else model[st]["tied_with"])
                nth = sum(1 for y in row[:n] if y.instr["op"] == x.instr["op"])
                sums.setdefault(key + (nth,), []).append(x)
            elif k[:4] == "SEND":
                other[("RECV" + k[4:], st + (1 if k == "SEND_F" else -1), mb)] = x
    for row in comm:
        for x in row:
            k = kind(x)
            if k[:4] == "RECV":
                send = other[(k, x.instr["stage"], x.instr["mb"])]
                assert items[send.rank] and x.instr["peer"] == send.rank
                send.meet = x.meet = [send, x]
    for group in sums.values():
        group.sort(key=lambda x: x.instr["stage"])
        for x in group:
            x.meet = group
    for row in comm:
        for x in row:
            k, m = kind(x), x.meet
            hops = [(m[i].rank, m[(i + 1) % len(m)].rank) for i in range(len(m))] if k in ("REDUCE", "TIE") else [(m[0].rank, m[1].rank)]
            x.time = time_of(kind(m[0]), m[0].instr["stage"])
            x.links = sorted({l for a, b in hops for l in links_of(a, b)}) if x.time else []
    at, cat, queue, t = [0] * len(ranks), [0] * len(ranks), [], 0
    done = lambda rows, r, n: all(x.end is not None and x.end <= t for x in rows[r][:n])
    group = [0] * len(ranks)  # members of the group at the head
    waited, busy = 0, {}
    total = sum(map(len, items))
    ended = 0
    while ended < total:
        assert t < 10**6, "it does not end"
        moved = True
        while moved:
            moved = False
            for r in range(len(ranks)):
                if at[r] < len(compute[r]):
                    x = compute[r][at[r]]
                    if done(compute, r, at[r]) and done(comm, r, x.waits("comm")):
                        x.start, x.end = t, t + time_of(kind(x), x.instr["stage"])
                        at[r] += 1
                        moved = True
                if cat[r] < len(comm[r]) and done(comm, r, cat[r]) and comm[r][cat[r]].posted is None and \
                        done(compute, r, comm[r][cat[r]].waits("compute")):
                    group[r] = comm[r][cat[r]].instr.get("group", 0) + 1
                    for x in comm[r][cat[r]:cat[r] + group[r]]:
                        x.posted = t
                    moved = True
                if cat[r] < len(comm[r]) and comm[r][cat[r]].posted is not None:
                    members = comm[r][cat[r]:cat[r] + group[r]]
                    for x in members:
                        if x.ready is None and all(y.posted is not None for y in x.meet):
                            for y in x.meet:
                                y.ready = t
                            if x.links:
                                queue.append(x.meet[0])
                            else:
                                for y in x.meet:
                                    y.start, y.over = t, t + y.time
                            moved = True
                    if all(x.start is not None and x.over <= t for x in members):
                        for x in members:
                            x.end = max(y.over for y in members)
                        cat[r] += group[r]
                        moved = True
        # first come, first served: of those that came at one time by sender, then place in its list
        queue.sort(key=lambda x: (x.ready, x.rank, x.n))
        again = False
        for i, x in enumerate(queue):
            if x.start is None and not any(set(x.links) & set(y.links) and (y.start is None or y.over > t) for y in queue[:i]):
                waited += t - x.ready
                for l in x.links:
                    busy[l] = busy.get(l, 0) + x.time
                for y in x.meet:
                    y.start, y.over = t, t + y.time
        queue = [x for x in queue if x.start is None or x.over > t]
        t += 1
        ended = sum(x.end is not None for row in items for x in row)
    return items, waited, busy


def lists(path, P, stages, functions, n, cost):
    """The lists of a schedule with transfers in groups, and a profile of its costs and links. None: a profile cannot say
    the links, which are from any of some ranks to any of some ranks."""
    links = []
    for f in functions:
        for value in {f(a, b, n) for a in range(P) for b in range(P) if a != b} - {-1}:
            pairs = {(a, b) for a in range(P) for b in range(P) if a != b and f(a, b, n) == value}
            from_, to = ({p[i] for p in pairs} for i in range(2))
            if {(a, b) for a in from_ for b in to if a != b} != pairs or value < 0:
                return None
            links.append({"from": sorted(from_), "to": sorted(to)})
    order = subprocess.run([pipec, path, "--emit=csv"], text=True, capture_output=True, check=True).stdout
    with open(path + ".csv", "w", encoding="utf-8") as f:
        f.write(grouped.grouped(order))
    times = {k: cost[k] for k in ("F", "B", "I", "W", "U")}
    with open(path + ".json", "w", encoding="utf-8") as f:
        json.dump({"pipe_profile": 1, "stages": [dict(times, send=cost["SEND_F"])] * stages, "links": links}, f)
    return [path + ".csv", f"--profile={path}.json"]


cases, shared, delayed, sums, in_groups = 0, 0, 0, 0, 0
while cases < int(count):
    name, v = rng.choice(BASES)
    P = rng.choice((2, 3, 4, 6)) if v else rng.choice((2, 4))
    M = rng.choice((P, 2 * P))
    n = rng.randint(1, 3)
    chosen = rng.sample(LINKS, rng.randint(1, 3))
    cost = {k: rng.randint(1, 9) for k in "FIWU"}
    cost["B"], cost["SEND_F"], cost["REDUCE"] = cost["I"] + cost["W"], rng.randint(0, 6), rng.randint(0, 9)
    cost["SEND_B"], cost["TIE"] = cost["SEND_F"], cost["REDUCE"]
    if name == "tied":
        base = ("schedule base(P = 4, M = 8) { ranks P  pipe net stages 2*P mbs M place s -> s < P ? s : 2*P-1-s  tie 0, 2*P-1, P-1\n"
                "  order r { do M { F[0] }  do M { F[1] }  do M { B[1] }  do M { B[0] }  U }\n}\n")
    else:
        base = 'import "%s/%s.pipe"\n' % (os.path.abspath(stdlib), name)
    text = base + "schedule x(P = %d, M = %d) extends %s() {\n" % (P, M, "base" if name == "tied" else "@")
    for expr, _ in chosen:
        text += "  exclusive a, b -> %s\n" % expr.replace("N", str(n))
    text += "  time { F = %(F)d  B = %(B)d  I = %(I)d  W = %(W)d  U = %(U)d  send = %(SEND_F)d  reduce = %(REDUCE)d }\n}\n" % cost
    if name != "tied":
        found = subprocess.run([pipec, "%s/%s.pipe" % (stdlib, name), "--emit=json"], text=True, capture_output=True, check=True)
        text = text.replace("@", json.loads(found.stdout)["schedule"])
    path = scratch + "/x.pipe"
    with open(path, "w") as f:
        f.write(text)
    own = v and name != "tied" and rng.random() < 0.5
    args = lists(path, P, v * P, [f for _, f in chosen], n, cost) if own else [path, "--lowering=global"]
    if not args:
        continue
    run = subprocess.run([pipec, *args, "--verify", "--emit=json"], text=True, capture_output=True, check=False)
    if run.returncode == 1 and own and ("[deadlock]" in run.stderr or "[matching]" in run.stderr):
        continue  # code that calls its network at each op need not complete
    assert run.returncode == 0, text + run.stderr
    program = json.loads(run.stdout)
    links_of = lambda a, b: [(i, f(a, b, n)) for i, (_, f) in enumerate(chosen) if f(a, b, n) >= 0]
    items, waited, busy = play(program, links_of, lambda k, stage: cost.get(k, 0))
    where = "%s P=%d M=%d %s\n%s" % (name, P, M, "own" if own else "global", text)
    for r, row in enumerate(items):
        for x in row:
            want = (x.instr["start"], x.instr["end"])
            assert (x.start, x.end) == want, "%s\nrank %d %s: %s, pipec says %s" % (where, r, x.instr["op"], (x.start, x.end), want)
    used = {}  # by the pairs that pass each link
    for i, (_, f) in enumerate(chosen):
        for a, b in {(a, b) for a in range(P) for b in range(P)}:
            used.setdefault((i, f(a, b, n)), set()).add((a, b))
    for link in program.get("links", ()):
        pairs = {tuple(p) for p in link["pairs"]}
        of = [k for k in used if k[1] >= 0 and pairs <= used[k] and busy.get(k, 0) == link["busy"]]
        assert of, where + str(link)
    assert program.get("link_wait", 0) == waited, where + str((program.get("link_wait"), waited))
    cases += 1
    shared += "links" in program
    delayed += waited > 0
    in_groups += any(x.instr.get("group") for row in items for x in row)
    sums += any(x.instr["op"].find("REDUCE") > 0 or x.instr["op"].find("TIE") > 0 for row in items for x in row)
print("%d programs, %d with shared links, in %d transfers wait, %d with sums, %d with groups" % (cases, shared, delayed, sums, in_groups))
if seed == "7":
    assert shared > cases / 2 and delayed > cases / 8 and sums > cases / 8 and in_groups > cases / 10

# SPDX-License-Identifier: MIT
"""How far is the predicted step above a lower bound, with lowering `global` and with `auto`?

    python3 test/bench/bounds.py PIPEC STDLIB_DIR [P M [NAME...]]

Each schedule of the library, or those that are named, with F = I = W = R = 100, B = 200 and six transfers from 0 to 200.
Prints each point where `global` is more than 10 % above its bound, or `auto` more than 5 %, then a line per lowering. The
bound takes the orders of the ops as they are. It is the largest of:

  path     the longest path of the program, and the step on an idle network;
  stream   for the transfers of a stream, all or those with the latest heads: their least head, their sum, their least
           tail. With `global` each rank has a stream; with `auto` each channel of the lowering `channels` is one;
  odd      with `global`, for the transfers along a cycle of n ranks, n odd: at most (n-1)/2 of them run at a time.

A head is the longest path to a transfer, a tail the longest path from its end. A path to an action also counts the
transfers that the action needs in a stream of its rank or of a neighbour, one after the other."""
import bisect
import json
import os
import re
import subprocess
import sys
import tempfile

SENDS = (0, 40, 80, 120, 160, 200)
LIMIT = {"auto": 1.05, "global": 1.10}
MAKES = {"SEND_F": ("F",), "SEND_B": ("B", "I"), "RECV_F": ("F",), "RECV_B": ("B", "I")}


def compiled(pipec, folder, name, schedule, params, send, lowering):
    """The program as JSON; None: the schedule does not admit the size."""
    with tempfile.TemporaryDirectory() as out:
        path = os.path.join(out, "timed.pipe")
        with open(path, "w", encoding="utf-8") as f:
            f.write('import "%s"\nschedule timed(%s) extends %s() without checks {\n'
                    '  time { F = 100  I = 100  W = 100  B = 200  R = 100  send = %d }\n}\n' % (
                        name, ", ".join("%s = %d" % p for p in params), schedule, send))
        run = subprocess.run([pipec, path, "-I", folder, "--emit=json", "--lowering=" + lowering],
                             text=True, capture_output=True, check=False)
    return json.loads(run.stdout) if run.returncode == 0 else None


class Graph:
    """Actions and transfers of a program, what each takes, and what waits for it."""

    def __init__(self, program, send, lowering):
        self.time, self.rank, self.before, self.after = [], [], [], []
        self.moves, self.streams, self.mask, self.near = {}, {}, {}, {}
        by_op = {}
        for rank in program["rank"]:
            last, more = None, 0
            for i in rank["instr"]:
                i["op"] = re.search("[A-Z_]+", i["op"]).group()
                if i["op"] in ("F", "B", "I", "W", "R", "U"):
                    if not more:
                        node, start = self.node(0, rank["rank"]), i["start"]
                        if last is not None:
                            self.arc(last, node)
                        last = node
                    self.time[last] = i["end"] - start
                    more = i.get("group", 0)
                    by_op[rank["rank"], i["op"], i["stage"], i.get("mb"), i.get("slice")] = last
        self.join(program, by_op, send, lowering)
        self.head = self.paths(self.before, self.after)
        self.tail = self.paths(self.after, self.before)

    def node(self, time, rank):
        self.time.append(time)
        self.rank.append(rank)
        self.before.append([])
        self.after.append([])
        return len(self.time) - 1

    def arc(self, v, w):
        self.after[v].append(w)
        self.before[w].append(v)

    def join(self, program, by_op, send, lowering):
        """Both ends of a transfer have one place among those of their kind from one rank to the other."""
        ends, pipe = {}, {s["stage"]: s["mb0"] for s in program["stages"]}
        for rank in program["rank"]:
            for i in rank["instr"]:
                if i["op"] in MAKES:
                    a, b = (rank["rank"], i["peer"]) if i["op"][0] == "S" else (i["peer"], rank["rank"])
                    at = next(by_op[k] for k in ((rank["rank"], o, i["stage"], i["mb"], i.get("slice")) for o in MAKES[i["op"]])
                              if k in by_op)
                    ends.setdefault((i["op"][0], a, b, i["op"][-1], pipe[i["stage"]]), []).append(at)
        for (end, *channel), made in ends.items():
            for x, y in zip(made, ends[("R", *channel)] if end == "S" else []):
                node = self.node(send, None)
                self.arc(x, node)
                self.arc(node, y)
                self.moves[node] = tuple(channel[:2])
                for stream in channel[:2] if lowering == "global" else [tuple(channel)]:
                    self.streams.setdefault(stream, []).append(node)
                    self.mask[stream] = self.mask.get(stream, 0) | 1 << node
                for rank in channel[:2]:
                    self.near.setdefault(rank, set()).update(channel[:2] if lowering == "global" else [tuple(channel)])

    def paths(self, before, after):
        """The least time before each node, by paths, and by the transfers that it needs in each stream of its rank."""
        left, long, needs = [len(nodes) for nodes in before], [0] * len(before), [0] * len(before)
        known = {}  # of each rank and stream: the transfers that its last action needs, latest heads first
        ready = [v for v, n in enumerate(left) if n == 0]
        for v in ready:
            for w in before[v]:
                long[v] = max(long[v], long[w] + self.time[w])
                needs[v] |= needs[w]
            for stream in self.near.get(self.rank[v], ()):
                mask, nodes = known.get((self.rank[v], stream), (0, []))
                more = needs[v] & self.mask[stream] & ~mask
                if more:
                    for w in bits(more):
                        bisect.insort(nodes, w, key=lambda w: -long[w])
                    known[self.rank[v], stream] = mask | more, nodes
                    long[v] = max(long[v], prefixes(nodes, self.time, long, None, 1))
            if v in self.moves:
                needs[v] |= 1 << v
            for w in after[v]:
                left[w] -= 1
                if left[w] == 0:
                    ready.append(w)
        assert len(ready) == len(left)
        return long

    def least(self, nodes, at_once=1):
        return prefixes(sorted(nodes, key=lambda v: -self.head[v]), self.time, self.head, self.tail, at_once)


def prefixes(nodes, time, head, tail, at_once):
    """The most of head, sum and tail over the prefixes of the nodes, whose heads descend. Without tail: none has one."""
    work, end, most = 0, None, 0
    for v in nodes:
        work += time[v]
        end = tail and (tail[v] if end is None else min(end, tail[v]))
        most = max(most, head[v] + -(-work // at_once) + (end or 0))
    return most


def bits(x):
    while x:
        yield (x & -x).bit_length() - 1
        x &= x - 1


def odd_cycles(pairs):
    """A shortest odd cycle through each pair of ranks that is on one, as a set of ranks."""
    near = {}
    for a, b in pairs:
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    found = set()
    for root in near:
        above, level = {root: None}, {root: 0}
        queue = [root]
        for v in queue:
            for w in sorted(near[v]):
                if w not in level:
                    above[w], level[w] = v, level[v] + 1
                    queue.append(w)
        for a, b in pairs:
            if level.get(a, -1) == level.get(b, -2):
                x, y, ranks = a, b, {a, b}
                while x != y:
                    x, y = above[x], above[y]
                    ranks |= {x, y}
                if len(ranks) % 2:
                    found.add(frozenset(ranks))
    return found


def bound(program, send, lowering):
    g = Graph(program, send, lowering)
    bounds = {"path": max([program["ideal"]] + [g.head[v] + g.time[v] + g.tail[v] for v in range(len(g.time))]),
              "stream": max(map(g.least, g.streams.values()), default=0)}
    if lowering == "global":
        bounds["odd"] = max((g.least([node for node, ends in g.moves.items() if ranks.issuperset(ends)], len(ranks) // 2)
                             for ranks in odd_cycles(set(g.moves.values()))), default=0)
    return max((value, which) for which, value in bounds.items())


def library(folder, wanted):
    for name in sorted(os.listdir(folder)):
        if name.endswith(".pipe") and (not wanted or name[:-5] in wanted):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                heads = re.findall(r"^schedule (\w+)\(([^)]*)\)", f.read(), re.M)
            if heads:
                yield name, heads[-1][0], [a.split("=")[0].strip() for a in heads[-1][1].split(",")]


def main():
    if len(sys.argv) in (1, 2, 4):
        sys.exit(__doc__)
    pipec, folder = sys.argv[1:3]
    P, M = [int(a) for a in sys.argv[3:5]] or [8, 24]
    points, above = dict.fromkeys(LIMIT, 0), dict.fromkeys(LIMIT, 0)
    for name, schedule, known in library(folder, sys.argv[5:]):
        params = [p for p in (("P", P), ("M", M)) if p[0] in known]
        for send in SENDS:
            for lowering, limit in LIMIT.items():
                program = compiled(pipec, folder, name, schedule, params, send, lowering)
                if program is None:
                    continue
                least, which = bound(program, send, lowering)
                assert least <= program["makespan"], "%s send %d %s: a bound of %d" % (name, send, lowering, least)
                points[lowering] += 1
                if program["makespan"] > limit * least:
                    above[lowering] += 1
                    print("%s send %d %s: %d, bound %d (%s), %.3f" % (
                        name[:-5], send, lowering, program["makespan"], least, which, program["makespan"] / least), flush=True)
    for lowering, limit in LIMIT.items():
        print("%s: %d of %d points are over %.2f of the bound" % (lowering, above[lowering], points[lowering], limit))


if __name__ == "__main__":
    main()

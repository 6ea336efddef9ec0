# SPDX-License-Identifier: MIT
# pipec --check of lists with their own transfers, against a machine that carries them out. The lists
# are literals of PyTorch's tests and issue threads, and the same with SENDs moved down and RECVs moved
# up or down at random, so that they stay lists that PyTorch would load.
#
#   lists.py PIPEC SHARED SCRATCH [SEED [PROGRAMS]]
#
# The machine is written from lang/spec.md 8.1 alone: ranks issue their lists, messages lie in queues,
# and whatever can go on next is picked at random; several runs must end alike. It says whether a
# list completes, is stuck or mispairs, and the least number of buffered messages with which it completes.
import json
import os
import random
import re
import subprocess
import sys

OP = re.compile(r"(\d+)([A-Z_]+?)(\d*)$")
CHANNELS = ("rank", "pair", "edge", "tagged")


class Action:
    def __init__(self, text, rank, rank_of):
        m = OP.match(text)
        self.text, self.rank, self.stage, self.kind = text, rank, int(m[1]), m[2]
        self.mb = int(m[3]) if m[3] else None
        self.send, self.recv = self.kind.startswith("SEND"), self.kind.startswith("RECV")
        self.comm = self.send or self.recv
        self.compute = self.kind in ("F", "B", "I", "W")
        back = self.kind.endswith("B") or self.kind in "BI"
        step = -1 if back else 1
        # The tensor: whose output it is. A RECV is written on the stage that gets it.
        origin = self.stage - step if self.recv else self.stage
        self.tensor = (origin, back, self.mb)
        if self.comm:
            self.peer = rank_of[self.stage + (-step if self.recv else step)]
        source = self.stage - step
        self.reads = None
        if self.compute and self.kind != "W" and 0 <= source < len(rank_of) and rank_of[source] != rank:
            self.reads = (source, back, self.mb)


class Machine:
    def __init__(self, lists, channels, buffer):
        self.tagged, self.buffer = channels == "tagged", buffer
        self.compute, self.queues = [], []
        for r, row in enumerate(lists):
            queues = {}
            above = 0  # computations that stand above
            self.compute.append([a for a in row if a.compute])
            for i, a in enumerate(row):
                if a.compute:
                    above += 1
                if a.comm:
                    key = {"rank": 0, "pair": a.peer, "edge": (a.peer, a.send), "tagged": i}[channels]
                    queues.setdefault(key, []).append((a, above))
            self.queues += list(queues.values())
        self.at = [0] * len(self.queues)
        self.pc = [0] * len(self.compute)
        self.arrived = [set() for _ in self.compute]
        self.flight = {}  # (from, to) -> buffered messages, oldest first
        self.over = set()  # tagged: tensors whose SEND has gone on
        self.sends = {}  # (from, to) -> tensors, in the order of the list
        for row in lists:
            for a in row:
                if a.send:
                    self.sends.setdefault((a.rank, a.peer), []).append(a.tensor)
        self.bad = False

    def head(self, q):
        """The transfer at the head of queue q, if its rank has computed all that stands above it."""
        if self.at[q] < len(self.queues[q]):
            a, above = self.queues[q][self.at[q]]
            if self.pc[a.rank] >= above:
                return a
        return None

    def moves(self):
        out = []
        for r, row in enumerate(self.compute):
            if self.pc[r] < len(row):
                reads = row[self.pc[r]].reads
                if reads is None or reads in self.arrived[r]:
                    out.append(("compute", r))
        heads = [(q, self.head(q)) for q in range(len(self.queues))]
        begun = {b.tensor for _, b in heads if b and b.recv}
        for q, a in heads:
            if a is None:
                continue
            if self.tagged and self.buffer:
                # Whoever stands above and has neither room nor a RECV that has begun is served first.
                pair = (a.rank, a.peer) if a.send else (a.peer, a.rank)
                held = self.flight.setdefault(pair, [])
                if a.recv:
                    if a.tensor in held:
                        out.append(("take", q))
                    continue
                ahead = self.sends[pair][:self.sends[pair].index(a.tensor)]
                if len(held) < self.buffer and all(t in self.over or t in begun for t in ahead):
                    out.append(("buffer", q))
                out += [("meet", q, p) for p, b in heads if b and b.recv and b.tensor == a.tensor]
                continue
            if a.send and self.buffer:
                if len(self.flight.get((a.rank, a.peer), [])) < self.buffer:
                    out.append(("buffer", q))
            elif a.recv and self.buffer:
                held = self.flight.get((a.peer, a.rank))
                if held and held[0] == a.tensor:
                    out.append(("take", q))
                elif held:
                    self.bad = True
            elif a.send:
                for p, b in heads:
                    if b is None or not b.recv or (a.rank, a.peer) != (b.peer, b.rank):
                        continue
                    if a.tensor == b.tensor:
                        out.append(("meet", q, p))
                    elif not self.tagged:
                        self.bad = True
        return out

    def go(self, move):
        if move[0] == "compute":
            self.pc[move[1]] += 1
            return
        a = self.head(move[1])
        pair = (a.rank, a.peer) if a.send else (a.peer, a.rank)
        self.over |= {a.tensor} if a.send else set()
        if move[0] == "buffer":
            self.flight.setdefault(pair, []).append(a.tensor)
        elif move[0] == "take":
            self.flight[pair].remove(a.tensor)  # without tags the first
            self.arrived[a.rank].add(a.tensor)
        else:
            self.arrived[a.peer].add(a.tensor)
            self.at[move[2]] += 1
        self.at[move[1]] += 1


def verdict(lists, channels, buffer, rng, runs=3):
    said = set()
    for _ in range(runs):
        m = Machine(lists, channels, buffer)
        while True:
            m.bad = False
            moves = m.moves()
            if not moves:
                break
            m.go(rng.choice(moves))
        left = any(pc < len(row) for pc, row in zip(m.pc, m.compute))
        left |= any(at < len(q) for at, q in zip(m.at, m.queues))
        said.add("matching" if m.bad else "deadlock" if left else "")
    if len(said) != 1:
        sys.exit("the order of events changes the outcome: %s" % said)
    return said.pop()


def least(lists, channels, rng, most):
    for k in range(most + 1):
        if verdict(lists, channels, k, rng, 1) == "":
            return k
    return None


def ask(pipec, path, rows, *options):
    with open(path, "w") as f:
        f.write("".join(",".join(r) + "\n" for r in rows))
    done = subprocess.run([pipec, "--check", *options, path], capture_output=True, text=True, close_fds=False)
    if done.returncode not in (0, 1):
        sys.exit("pipec: status %d\n%s" % (done.returncode, done.stderr))
    name = re.search(r"error: .*\[([a-z-]+)\]$", done.stderr, re.M)
    if (done.returncode == 1) != bool(name):
        sys.exit("pipec: status %d and\n%s" % (done.returncode, done.stderr))
    return name[1] if name else "", done.stdout + done.stderr


def said_least(text):
    if "no buffer size lets the lists complete" in text:
        return None
    m = re.search(r"buffers (\d+) message|at least (\d+) message|--sends=buffered:(\d+)", text)
    return int(m[1] or m[2] or m[3]) if m else 0


def literals(shared):
    folder = os.path.join(shared, "pytorch")
    v = json.load(open(os.path.join(folder, "conformance_vectors.json")))
    for i in v["issue_printed_schedules"]:
        if "comms" in i:
            yield i["source"].split(" ")[0], i["comms"]
    for i in v["send_recv"]:
        yield "send_recv " + i["name"], i["comms"]
    for i in v["defer_recv"]:
        if "overlap_f_b" in i["name"]:
            continue  # a list that lacks ops
        yield "before defer_recv " + i["name"], i["input"]
        yield "after defer_recv " + i["name"], i["expected"]
    rows = open(os.path.join(folder, "zb1p_2rank_2stagep_comms.csv")).read().split("\n")
    yield "zb1p_2rank_2stagep_comms.csv", {str(r): row.split(",") for r, row in enumerate(rows) if row}


def today(rows):
    """B where a W follows is I in today's notation."""
    split = {o.replace("W", "B") for row in rows for o in row if "W" in o}
    return [[o.replace("B", "I") if o in split else o for o in row] for row in rows]


def parse(rows):
    place = {}
    for r, row in enumerate(rows):
        for o in row:
            m = OP.match(o)
            place.setdefault(int(m[1]), r)
    rank_of = [place[s] for s in range(len(place))]
    return [[Action(o, r, rank_of) for o in row] for r, row in enumerate(rows)]


def mutate(rows, rng):
    """A transfer moves to another place where PyTorch would still take it."""
    lists = parse(rows)
    for _ in range(rng.randrange(1, 4)):
        r = rng.randrange(len(rows))
        row = lists[r]
        i = rng.choice([i for i, a in enumerate(row) if a.comm])
        a = row.pop(i)
        if a.send:
            low, high = 1 + max(k for k, x in enumerate(row) if x.compute and x.kind != "W" and x.tensor == a.tensor), len(row)
        else:
            low, high = 0, max(k for k, x in enumerate(row) if x.reads == a.tensor)
        near = rng.random() < 0.5
        k = rng.randint(max(low, i - 3), min(high, i + 3)) if near and max(low, i - 3) <= min(high, i + 3) else rng.randint(low, high)
        row.insert(k, a)
    return [[a.text for a in row] for row in lists]


def main():
    pipec, shared, scratch = sys.argv[1:4]
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    programs = int(sys.argv[5]) if len(sys.argv) > 5 else 100
    rng = random.Random(seed)
    path = scratch + ".csv"
    count = {}

    def same(what, rows, channels, buffer):
        lists = parse(rows)
        want = verdict(lists, channels, buffer, rng)
        sends = "buffered:%d" % buffer if buffer else "rendezvous"
        got, text = ask(pipec, path, rows, "--channels=" + channels, "--sends=" + sends)
        if got != want:
            sys.exit("%s --channels=%s --sends=%s: pipec says '%s', the machine '%s'\n%s\n%s" % (
                what, channels, sends, got, want, "\n".join(",".join(r) for r in rows), text))
        if got != "matching" and (buffer or got):
            k = least(lists, channels, rng, sum(len(r) for r in rows))
            if said_least(text) != k:
                sys.exit("%s --channels=%s: pipec finds the least buffer %s, the machine %s\n%s" % (
                    what, channels, said_least(text), k, text))
        count[got] = count.get(got, 0) + 1
        return got

    base = []
    for name, comms in literals(shared):
        rows = today([comms[r] for r in sorted(comms, key=int)])
        base.append(rows)
        print("%-52s %s" % (name, " ".join(same(name, rows, c, 0) or "completes" for c in CHANNELS)))
        for c in CHANNELS:
            for buffer in (1, 2, 3):
                same(name, rows, c, buffer)
    for k in range(programs):
        rows = rng.choice(base)
        for _ in range(rng.randrange(1, 5)):
            rows = mutate(rows, rng)
        same("program %d of seed %d" % (k, seed), rows, rng.choice(CHANNELS), rng.choice((0, 0, 1, 2, 3)))
    print("%d complete, %d deadlock, %d mispaired: all agree" % (
        count.get("", 0), count.get("deadlock", 0), count.get("matching", 0)))


main()

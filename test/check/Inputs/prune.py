# SPDX-License-Identifier: MIT
# Waits before and after pruning: those of --dump-after=settle, and those of --dump-after=lower.
#
#   prune.py PIPEC STDLIB SCRATCH SEED
#
# Each wait before must follow from the waits after and the order of queues. No wait after may follow
# from the others, and each must follow from those before; one that ends inside of a group of
# transfers may be for the end of the group. Rows know the start of the step, the end of the step
# knows all rows. Mistakes are planted, and found: a wait is dropped, or one less.
import os
import random
import re
import subprocess
import sys

TEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path += [os.path.join(TEST, "oracle"), os.path.join(TEST, "channels")]
import clocks
import grouped

pipec, stdlib, scratch, seed = *sys.argv[1:4], int(sys.argv[4])
rng = random.Random(seed)
SIZES = ("-DP=8", "-DM=32")
SCHEDULES = ("1f1b", "zb_v", "interleaved", "dualpipe", "chimera", "po_f", "seq1f1b", "bpipe")
MISTAKES = 20  # of each kind, in each program
WAIT = re.compile(r" after (?:(compute|comm|copy)|channel (\d+)) (\d+)")


def wrong(where, what):
    sys.exit(f"{where}: {what}")


def run(*args):
    got = subprocess.run([pipec, *args], capture_output=True, text=True)
    if got.returncode:
        wrong(" ".join(args), got.stderr)
    return got.stdout


def row_of(line):
    """The row of a line of a dump, as in the JSON form; "end" has waits alone."""
    words = line.split()
    fields = line.split(" after ")[0].split()
    row = {"op": words[0], "waits": []}
    for key in ("channel", "group"):
        if key in fields:
            row[key] = int(fields[fields.index(key) + 1])
    for stream, channel, count in WAIT.findall(line):
        wait = {"stream": stream or "comm", "count": int(count)}
        if channel:
            wait["channel"] = int(channel)
        row["waits"].append(wait)
    return row


def ranks_of(lines):
    """The rows of each rank."""
    ranks = []
    for line in lines:
        head = re.match(r"rank (\d+)[: ]", line)
        if head and int(head[1]) == len(ranks):
            ranks.append([])
        elif re.match(r"  (?:\d+[A-Z]|end)", line):
            ranks[-1].append(row_of(line))
    return ranks


def numbered(rows):
    """Each row by its op and the position among the rows of this op."""
    seen, found = {}, {}
    for row in rows:
        seen[row["op"]] = seen.get(row["op"], 0) + 1
        found[row["op"], seen[row["op"]]] = row
    return found


class Rank:
    """rows: after pruning, in issue order; before[i]: the waits of row i before pruning."""

    def __init__(self, streams, rows):
        self.end = rows.pop()
        self.rows = rows
        unpruned = numbered(streams)
        here = numbered(rows)
        if self.end["op"] != "end" or set(unpruned) != set(here):
            raise clocks.BadWait("the dumps have other rows")
        self.before = [clocks.waits_of(unpruned[key]) for key in here]
        whole = [dict(row, group=0, waits=unpruned[key]["waits"]) for key, row in here.items()]
        self.unpruned = clocks.Clocks(whole)

    def group_end(self, queue, count):
        """The end of the group of transfers that so many of the queue end in."""
        own = self.unpruned.rows_of.get(queue, ())
        return count + (self.rows[own[count - 1]].get("group", 0) if count and queue[0] == "comm" else 0)

    def fault(self):
        """None, or what is wrong. What the rows know is looked at first, then whether a wait is too many."""
        try:
            after = clocks.Clocks(self.rows, clocks.waits_of(self.end))
        except clocks.BadWait as e:
            return str(e)
        for i, row in enumerate(self.rows):
            known = after.known[i]
            if clocks.START not in known:
                return f"{row['op']} does not wait for the start"
            if not after.knows(len(self.rows), i):
                return f"the end does not wait for {row['op']}"
            for queue, count in self.before[i]:
                if known.get(queue, 0) < count:
                    return f"{row['op']} does not wait for {count} of {queue}"
        for i, row in enumerate(self.rows + [self.end]):
            if i < len(self.rows):
                queue = clocks.queue_of(row)
                above = [j for j in after.rows_of[queue] if j < i]
            else:
                queue, above = clocks.COMPUTE, after.rows_of.get(clocks.COMPUTE, [])
            start = {clocks.START: 1} if queue == clocks.COMPUTE else {}
            waits = clocks.waits_of(row)
            for k, (of, count) in enumerate(waits):
                others = dict(after.over[queue, len(above)] if above else start)
                for other in waits[:k] + waits[k + 1:]:
                    clocks.join(others, after.over[other])
                target = (of, count) if count else (clocks.START, 1)
                if others.get(target[0], 0) >= target[1]:
                    return f"{row['op']} waits for {count} of {of}, which follows"
                if i < len(self.rows) and count and self.group_end(of, self.unpruned.known[i].get(of, 0)) < count:
                    return f"{row['op']} waits for {count} of {of}, which nothing asks for"
        return None


def program(*args):
    where = " ".join(args)
    before, after = (ranks_of(run(f"--dump-after={pass_}", *args).splitlines()) for pass_ in ("settle", "lower"))
    if not before or len(before) != len(after):
        wrong(where, "the dumps have no ranks, or not the same")
    try:
        ranks = [Rank(streams, rows) for streams, rows in zip(before, after)]
    except clocks.BadWait as e:
        wrong(where, e)
    for r, rank in enumerate(ranks):
        fault = rank.fault()
        if fault:
            wrong(f"{where}, rank {r}", fault)
    asked = sum(len(waits) for rank in ranks for waits in rank.before)
    places = [(rank, row, k) for rank in ranks for row in rank.rows + [rank.end] for k in range(len(row["waits"]))]
    if not asked or asked < len(places) / 2:
        wrong(where, f"{asked} waits before pruning, {len(places)} after")
    found = 0
    for less in (False, True):
        for rank, row, k in rng.sample(places, min(len(places), MISTAKES)):
            keep = row["waits"]
            if less and keep[k]["count"] == 0:
                continue
            changed = [dict(keep[k], count=keep[k]["count"] - 1)] if less and keep[k]["count"] > 1 else []
            row["waits"] = keep[:k] + changed + keep[k + 1:]
            if not rank.fault():
                wrong(where, f"{row['op']}: {'one less' if less else 'no wait'} for {keep[k]} is not found")
            row["waits"] = keep
            found += 1
    return asked, len(places), found


programs = [(f"{stdlib}/{name}.pipe", *SIZES, "--lowering=global") for name in SCHEDULES]
programs += [(f"{stdlib}/{name}.pipe", *SIZES, "--lowering=channels") for name in ("1f1b", "zb_v", "dualpipe", "seq1f1b")]
for name in ("1f1b", "gpipe", "zb_h1"):  # lists whose transfers are in groups
    path = f"{scratch}/{name}.csv"
    with open(path, "w", encoding="utf-8") as f:
        f.write(grouped.grouped(run(f"{stdlib}/{name}.pipe", *SIZES, "--emit=csv")))
    programs.append((path,))
total = [0, 0, 0]
for args in programs:
    total = [a + b for a, b in zip(total, program(*args))]
print(f"seed {seed}")
print("{} programs: {} waits before pruning, {} after, {} mistakes found".format(len(programs), *total))

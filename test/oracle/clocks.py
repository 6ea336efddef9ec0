# SPDX-License-Identifier: MIT
# What is over when an instruction starts: vector clocks over the waits of one rank, written from
# runtime/include/pipe_instr.h alone. A queue runs its instructions one after another. A wait adds
# what the other queue knew once the instruction waited for was over. Nothing is known of other
# ranks.
#
# Rows are those of the JSON form (lang/spec.md 9), in issue order. A queue is (stream, channel);
# channel is None unless the lowering is `channels`. A clock is {queue: instructions that are over}.
import re

COMPUTE, COPY, START = ("compute", None), ("copy", None), ("start", None)
KIND = re.compile(r"\d+([A-Z_]+)")


class BadWait(Exception):
    pass


def stream_of(row, sides=()):
    if "side" in row:
        return sides[row["side"]]["stream"]
    kind = KIND.match(row["op"])[1]
    if kind in ("OFF", "LOAD"):
        return "copy"
    return "comm" if kind in ("REDUCE", "TIE") or kind[:5] in ("SEND_", "RECV_") else "compute"


def queue_of(row, sides=()):
    return stream_of(row, sides), row.get("channel")


def waits_of(row):
    """[(queue, count)] of an instruction, or of a rank: its end of the step."""
    return [((w["stream"], w.get("channel")), w["count"]) for w in row.get("waits", ())]


class Clocks:
    """queue[i], nth[i]: where row i stands, from 1. known[i]: the clock at its start; known[-1]: at
    the end of the step. rows_of[queue]: its rows in order."""

    def __init__(self, rows, end=(), sides=()):
        self.queue, self.nth, self.known, self.rows_of = [], [], [], {}
        self.grouped = [row.get("group", 0) > 0 for row in rows]
        start = {START: 1}
        self.now = {COMPUTE: start}  # what each queue knows
        self.over = {(COMPUTE, 0): start}  # what is known once so many of a queue are over
        for i, row in enumerate(rows):
            at = queue_of(row, sides)
            known = self.clock(at, waits_of(row), row["op"])
            after = dict(known)
            after[at] = known.get(at, 0) + 1
            self.now[at] = self.over[at, after[at]] = after
            self.queue.append(at)
            self.nth.append(after[at])
            self.known.append(known)
            self.rows_of.setdefault(at, []).append(i)
        self.known.append(self.clock(COMPUTE, end, "the end"))

    def clock(self, at, waits, who):
        """What a row of queue `at` knows with these waits."""
        known = dict(self.now.get(at, {}))
        for queue, count in waits:
            if (queue, count) not in self.over:
                raise BadWait("%s waits for %d of %s, which stand below it or nowhere" % (who, count, queue))
            if count and queue[0] == "comm" and self.grouped[self.rows_of[queue][count - 1]]:
                raise BadWait("%s waits for %d of %s, which end inside of a group" % (who, count, queue))
            join(known, self.over[queue, count])
        return known

    def knows(self, i, above):
        """Whether row `above` is over when row i starts; i = number of rows: at the end of the step."""
        return self.known[i].get(self.queue[above], 0) >= self.nth[above]


def join(known, other):
    for queue, count in other.items():
        known[queue] = max(known.get(queue, 0), count)


def of_rank(form, r):
    """The clocks of rank r of a JSON form."""
    rank = form["rank"][r]
    return Clocks(rank["instr"], waits_of(rank), form.get("sides", ()))

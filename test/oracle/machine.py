# SPDX-License-Identifier: MIT
# A second machine: what a program does, written from runtime/include/pipe_instr.h alone and as plainly as
# possible. It reads `pipec --emit=json` and checks a program in five ways that share nothing with
# the compiler: it walks the tables, derives from the waits what is over when an instruction starts,
# runs the lists with transfers in random order, computes when each instruction starts, and runs them
# again with random durations to see what lies in every slot at every moment. A fault raises Wrong
# with a text that names rank and op.
import json
import re

import clocks

COMPUTE = ("F", "B", "I", "W", "R", "U")
COPY = ("OFF", "LOAD")
OP = re.compile(r"(\d+)([A-Z_]+?)(\d*)(?:\.(\d+))?$")


class Wrong(Exception):
    pass


def need(ok, *what):
    if not ok:
        raise Wrong(" ".join(str(w) for w in what))


class Instr:
    def __init__(self, rank, index, row, slices):
        self.rank, self.index, self.text = rank, index, row["op"]
        m = OP.match(row["op"])
        need(m, "rank", rank, "op", row["op"], "is not in op notation")
        self.stage, self.kind = int(m.group(1)), m.group(2)
        self.mb = int(m.group(3)) if m.group(3) else None
        need(self.stage == row["stage"] and self.mb == row.get("mb"), row)
        need((m.group(4) is not None) == (slices > 1 and self.mb is not None), row)
        if m.group(4):  # from here on a microbatch is a unit: a slice of one
            need(int(m.group(4)) == row["slice"] < slices, row)
            self.mb = self.mb * slices + row["slice"]
        self.on = 0 if self.kind in COMPUTE else 2 if self.kind in COPY else 1
        self.comm = self.on == 1
        self.send = self.kind.startswith("SEND")
        self.forward = self.kind in ("F", "SEND_F", "RECV_F")
        self.phase = row["phase"]
        self.start, self.end = row["start"], row["end"]
        self.queue, self.waits = clocks.queue_of(row), clocks.waits_of(row)
        self.keep = row.get("keep")
        self.away = self.on == 2 and row.get("peer") is not None  # its stash goes to its peer
        self.peer, self.act, self.gout = row.get("peer"), row.get("act"), row.get("gout")
        self.src, self.dst, self.keep = row.get("in"), row.get("out"), row.get("keep")
        self.group = row.get("group", 0)

    def __str__(self):
        return "rank %d [%d] %s" % (self.rank, self.index, self.text)


class Program:
    """The JSON form of one program, as text or parsed; ranks: those that are read, or all of them. `lists[r]` are its instructions, `compute[r]`, `comm[r]`, `copy[r]` the streams."""

    def __init__(self, form, ranks=None):
        self.json = json.loads(form) if isinstance(form, str) else form
        j = self.json
        need(j["pipec_json"] == 2, "another version of the JSON")
        self.stages, self.nrank, self.slices = j["stages"], j["ranks"], j["slices"]
        self.nmb = j["microbatches"] * self.slices
        self.nstage = len(self.stages)
        self.lists = [[Instr(r, i, row, self.slices) for i, row in enumerate(rank["instr"])] if ranks is None or r in ranks else []
                      for r, rank in enumerate(j["rank"])]
        self.compute, self.comm, self.copy = [[[c for c in l if c.on == x] for l in self.lists] for x in range(3)]
        self.queues = [{q: [c for c in l if c.queue == q] for q in sorted({c.queue for c in l}, key=str)}
                       for l in self.lists]
        try:
            self.clocks = [l and clocks.of_rank(j, r) for r, l in enumerate(self.lists)]
        except clocks.BadWait as e:
            raise Wrong(e)
        self.send = j.get("send", "end")
        for ops in self.lists:
            for a, b in zip(ops, ops[1:]):
                need(not a.group or (b.group == a.group - 1 and b.on == 0 and not b.waits), b, "is not in the action of", a)
            need(not ops or not ops[-1].group and not any(c.group and (c.on or c.kind == "U") for c in ops), "an odd action")

        self.only_forward = bool(j["forward"])
        self.again = {(c.stage, c.mb) for l in self.compute for c in l if c.kind == "R"}

    def rank_of(self, stage):
        return self.stages[stage]["rank"]

    def cost(self, c):
        """Of a compute op, a copy, or a SEND."""
        return self.stages[c.stage]["send" if c.comm else c.kind]

    def action(self, r, i):
        """The ops of the action of rank r that begins with compute op i."""
        return self.compute[r][i:i + self.compute[r][i].group + 1]

    def action_cost(self, ops, cost):
        if sorted(c.kind for c in ops) == ["B", "F"]:
            f = next(c for c in ops if c.kind == "F")
            if self.stages[f.stage].get("FB"):
                return self.stages[f.stage]["FB"]
        return sum(cost(c) for c in ops)

    def orders(self):
        return [[c.text for c in ops if c.kind != "U"] for ops in self.compute]

    def over(self, c, queue):
        """How many instructions of a queue of its rank are over when c starts."""
        return self.clocks[c.rank].known[c.index].get(queue, 0)

    def crosses(self, a, b):
        return 0 <= a < self.nstage and 0 <= b < self.nstage and self.rank_of(a) != self.rank_of(b)


# ---- what must be there ----

def wanted(p, rank, split):
    """The ops of a rank as a sorted list, updates apart; split: the (stage, mb) that have I and W."""
    ops = []
    for s in range(p.nstage):
        if p.rank_of(s) != rank:
            continue
        for m in range(p.nmb):
            kinds = ["F"] + (["I", "W"] if (s, m) in split else ["B"]) + (["R"] if (s, m) in p.again else [])
            kinds += ["SEND_F", "RECV_B"] if p.crosses(s, s + 1) else []
            kinds += ["RECV_F", "SEND_B"] if p.crosses(s - 1, s) else []
            if p.only_forward:
                kinds = [k for k in kinds if k in ("F", "SEND_F", "RECV_F")]
            unit = "%d" % m if p.slices == 1 else "%d.%d" % divmod(m, p.slices)
            ops += ["%d%s%s" % (s, k, unit) for k in kinds]
    return sorted(ops)


def check_tables(p):
    split = {(c.stage, c.mb) for ops in p.compute for c in ops if c.kind == "W"}
    for s in p.stages:
        need(0 <= s["rank"] < p.nrank, "stage", s, "has no rank")
    for r in range(p.nrank):
        own = [s for s in p.stages if s["rank"] == r]
        need([s["chunk"] for s in own] == list(range(len(own))), "chunks of rank", r)
        need(sorted(c.text for c in p.lists[r] if c.on < 2 and c.kind != "U") == wanted(p, r, split), "rank", r,
             "lacks or repeats an op")
        check_copies(p, r)
        for s in own:  # each gradient has its update, each update a gradient
            kinds = "".join(c.kind for c in p.compute[r] if c.stage == p.stages.index(s) and c.kind in "BWU")
            if p.only_forward:
                need(kinds == "", "rank", r, "trains")
                continue
            need(kinds.endswith("U") and "UU" not in kinds and kinds[0] != "U", "rank", r, "updates as in", kinds)
        for c in p.lists[r]:
            to = c.stage + (1 if (c.kind in ("SEND_F", "RECV_B")) else -1)
            need(c.away or c.peer == (p.rank_of(to) if c.comm else None), c, "peer")
            need(not c.away or 0 <= c.peer < p.nrank and c.peer != r, c, "peer")
    for l in p.compute:  # slices go forward in order and backward in the reverse
        at = {("F" if c.forward else "G", c.stage, c.mb): i for i, c in enumerate(l) if c.kind in "FBI"}
        for (k, s, u), i in at.items():
            if u % p.slices:
                need((at[k, s, u - 1] < i) == (k == "F"), l[i], "is out of order with the slice before it")
    for r, rank in enumerate(p.json["rank"]):
        walk_compute(p, r, rank)
        check_bytes(p, r, rank)


def check_copies(p, r):
    """A stash has one OFF and one LOAD, or none; no op of its own stands between them in the text."""
    cells = [(c.stage, c.mb) for c in p.copy[r]]
    for cell in set(cells):
        two = [c for c in p.copy[r] if (c.stage, c.mb) == cell]
        need([c.kind for c in two] == ["OFF", "LOAD"], "rank", r, "copies", cell, [c.kind for c in two])
        own = [i for i, c in enumerate(p.compute[r]) if (c.stage, c.mb) == cell]
        before = [c for c in own if c < p.over(two[0], clocks.COMPUTE)]
        need(before and len(before) < len(own) and own[len(before)] >= p.over(two[1], clocks.COMPUTE),
             two[0], "and", two[1], "do not stand between two ops of theirs")


def walk_compute(p, r, rank):
    """Stashes along the compute stream: counts, peaks, and the exact size of the pools. A copy stands
    before the first op that need not be over; the slot of an OFF is free for a LOAD below, and for others once
    an op waits for the OFF."""
    live, peak, held, warm = {}, {}, 0, None
    pool = {slot: q["first"] for q in rank["pools"] for slot in range(q["first"], q["first"] + q["count"])}
    most = {"inflight": 0, "held": 0, "host": 0, "kept": 0}
    classes = (("inflight", "act"), ("held", "gout"), ("host", "host"), ("kept", "keep"))
    copied = over = 0
    left = {}  # slot -> the OFF that has left it

    def change(cls, slot, take):
        slots = live.setdefault((cls, pool[slot]), set())
        (slots.add if take else slots.remove)(slot)
        peak[(cls, pool[slot])] = max(peak.get((cls, pool[slot]), 0), len(slots))
        for key, name in classes:
            most[key] = max(most[key], sum(len(v) for k, v in live.items() if k[0] == name))

    here = lambda c, s: c.kind not in "WR" and 0 <= s < p.nstage and p.rank_of(s) == r
    i = 0
    while i < len(p.compute[r]):
        ops = p.action(r, i)
        while copied < len(p.copy[r]) and p.over(p.copy[r][copied], clocks.COMPUTE) <= i:
            d = p.copy[r][copied]
            if not d.away:
                change("host", d.keep, d.kind == "OFF")
            if d.kind == "OFF":
                left[d.act] = d
            elif not left.pop(d.act, None):
                change("act", d.act, True)
            copied += 1
        while over < p.over(ops[0], clocks.COPY):
            d = p.copy[r][over]
            if left.get(d.act) is d:
                change("act", d.act, False)
                del left[d.act]
            over += 1
        if ops[0].kind == "U":
            i += 1
            continue
        if warm is None and any(c.kind in "BI" for c in ops):
            warm = sum(b.kind == "F" for b in p.compute[r][:i])
        for c in ops:  # an action takes all before it gives any
            i += 1
            again = (c.stage, c.mb) in p.again
            need((c.keep is not None) == (again and c.kind in "FR"), c, "keep slot", c.keep)
            take = [("act", c.act)] if c.kind in "FR" else []
            take += [("keep", c.keep)] if c.kind == "F" and again else []
            take += [("local", c.dst)] if c.kind == "R" and c.dst is not None else []
            take += [("gout", c.gout)] if c.kind == "I" else []
            take += [("local", c.dst)] if here(c, c.stage + (1 if c.forward else -1)) else []
            for cls, slot in take:
                change(cls, slot, True)
        for c in ops:
            alone = (c.stage, c.mb) in p.again or (p.only_forward and p.slices == 1)  # F gives its stash back
            give = [("act", c.act)] if c.kind in "BW" or (c.kind == "F" and alone) else []
            if p.only_forward and p.slices > 1 and c.mb % p.slices == p.slices - 1:  # all of its microbatch
                give += [("act", d.act) for d in p.compute[r]
                         if d.stage == c.stage and d.mb // p.slices == c.mb // p.slices]
            give += [("keep", c.keep)] if c.kind == "R" else []
            give += [("local", c.dst)] if c.kind == "R" and c.dst is not None else []
            give += [("gout", c.gout)] if c.kind == "W" else []
            give += [("local", c.src)] if here(c, c.stage + (-1 if c.forward else 1)) else []
            for cls, slot in give:
                change(cls, slot, False)
    for slot in left:
        change("act", slot, False)
    need(copied == len(p.copy[r]), "rank", r, "has copies after its last op")
    need(not any(live.values()), "rank", r, "ends with full slots", live)
    for k in most:
        need(rank[k] == most[k], "rank", r, k, rank[k], "should be", most[k])
    warm = len(p.compute[r]) if p.only_forward else warm
    need(rank["warmup_depth"] == warm, "rank", r, "warmup_depth", rank["warmup_depth"], "should be", warm)
    for q in rank["pools"]:
        if q["class"] in ("act", "gout", "local", "keep", "host"):
            need(peak.get((q["class"], q["first"])) == q["count"], "rank", r, "pool", q, "is not its peak",
                 peak.get((q["class"], q["first"])))


def check_bytes(p, r, rank):
    if not p.json["sized"]:
        return
    shared = [(q["class"], q["bytes"]) for q in rank["pools"] if q["class"] in ("act", "gout", "local", "keep", "host")]
    need(len(shared) == len(set(shared)), "rank", r, "has two pools of one class and size", shared)
    up = lambda n: -(-n // 64) * 64
    own = [s for s in p.stages if s["rank"] == r]
    b = {k: sum(up(s[k]) for s in own) for k in ("weight", "grad", "opt")}
    b["work"] = max(up(s["work"]) for s in own)
    for cls in ("act", "gout", "out", "in", "local", "keep"):
        b[cls] = sum(q["count"] * up(q["bytes"]) for q in rank["pools"] if q["class"] == cls)
    guest = sum(q["count"] * up(q["bytes"]) for q in rank["pools"] if q["class"] == "guest")
    b.update({"guest": guest} if guest else {})
    b["total"] = sum(b.values())
    host = sum(q["count"] * up(q["bytes"]) for q in rank["pools"] if q["class"] == "host")
    need(rank["host_bytes"] == host, "rank", r, "host_bytes", rank["host_bytes"], "should be", host)
    need(rank["bytes"] == b, "rank", r, "bytes", rank["bytes"], "should be", b)


# ---- running it ----

def mate(send, recv):
    """Whether the two are the ends of one transfer."""
    need(send.send and not recv.send, "not a transfer")
    return send.mb == recv.mb and send.forward == recv.forward and \
        recv.stage == send.stage + (1 if send.forward else -1)


def run(p, rng, duration, fused=False, together=False):
    """Runs the lists: any enabled step may come next, rng chooses; the times cannot depend on it.
    duration(c): of a compute op, a copy or a SEND. The ops of an action run one after the other, or, together,
    side by side from its start to its end; fused: with FB, none later than the end that it gives. Returns
    {instr: (start, end)}; Wrong on a stall or when a SEND meets the RECV of another tensor."""
    heads = [(r, q) for r in range(p.nrank) for q in p.queues[r]]
    ends = {at: [] for at in heads}  # when each instruction of a queue ends
    when = {}
    total = sum(len(l) for l in p.lists)

    def head(r, q):
        queue = p.queues[r].get(q, [])
        n = len(ends[r, q]) if queue else 0
        return queue[n] if n < len(queue) else None

    def earliest(r, q):
        """When the head could start for all that its rank knows; None: it cannot yet."""
        c = head(r, q)
        if c is None or any(n > len(ends.get((r, y), ())) for y, n in c.waits):
            return None
        return max([ends[r, y][n - 1] for y, n in c.waits if n] + ends[r, q][-1:] + [0])

    def finish(r, q, start, end):
        when[head(r, q)] = (start, end)
        ends[r, q].append(end)

    while len(when) < total:
        ready = [at for at in heads if earliest(*at) is not None]
        rng.shuffle(ready)
        for r, q in ready:
            c, start = head(r, q), earliest(r, q)
            if c.on == 0:
                ops = p.action(r, len(ends[r, q]))
                took = {c: duration(c) for c in ops}
                stop, now = start + (p.action_cost(ops, took.get) if fused else sum(took.values())), start
                for c in ops:
                    end = stop if together or c is ops[-1] else min(now + took[c], stop)
                    finish(r, q, start if together else now, end)
                    now = end
                break
            if c.on == 2:
                finish(r, q, start, start + duration(c))
                break
            d = head(c.peer, q)
            other = earliest(c.peer, q)
            if d is None or other is None or d.peer != r or d.send == c.send:
                continue
            send, recv = (c, d) if c.send else (d, c)
            need(mate(send, recv), send, "meets", recv)
            start = max(start, other)
            end = start + duration(send)
            finish(r, q, start, end)
            finish(c.peer, q, start, end)
            break
        else:
            raise Wrong("stalls at " + ", ".join(str(head(*at)) for at in heads if head(*at)))
    return when


def check_times(p, rng):
    """The predicted times are those of the machine with the program's own costs."""
    when = run(p, rng, p.cost, fused=True)
    for c, (start, end) in when.items():
        need((c.start, c.end) == (start, end), c, "is predicted", (c.start, c.end), "but runs", (start, end))
    j = p.json
    first, last = min(s for s, _ in when.values()), max(e for _, e in when.values())
    need(j["makespan"] == last - first, "makespan", j["makespan"], "should be", last - first)
    busy = sum(p.action_cost(p.action(r, i), p.cost) for r in range(p.nrank) for i in range(len(p.compute[r]))
               if i == 0 or not p.compute[r][i - 1].group)
    need(j["busy"] == busy, "busy", j["busy"], "should be", busy)
    compute = [[when[c] for c in l if c.on == 0] for l in p.lists]
    span = max(max(e for _, e in l) - min(s for s, _ in l) for l in compute)
    need(j["span"] == span, "span", j["span"], "should be", span)
    ideal, _ = play(p)
    need(j["ideal"] == ideal, "ideal", j["ideal"], "should be", ideal)


def play(p, cost=None):
    """Makespan and longest window of one rank when transfers never wait: cost(kind) for uniform
    costs with send = 0, else the program's own."""
    price = (lambda c: cost(c.kind)) if cost else p.cost
    wire = (lambda s: 0) if cost else (lambda s: p.stages[s]["send"])
    end, at, now, first = {}, [0] * p.nrank, [0] * p.nrank, [None] * p.nrank
    moved = True
    last = [0] * p.nrank

    def source(c):
        """The tensor that c waits for, or None, and when it is there."""
        s = c.stage + (-1 if c.forward else 1)
        if c.kind not in ("F", "B", "I") or not 0 <= s < p.nstage:
            return None, 0
        src = (s, "F" if c.forward else "G", c.mb)
        return src, end.get(src, 0) + (wire(s) if p.rank_of(s) != p.rank_of(c.stage) else 0)

    while moved:
        moved = False
        for r in range(p.nrank):
            while at[r] < len(p.compute[r]):
                ops = p.action(r, at[r])
                sources = [source(c) for c in ops]
                if any(src is not None and src not in end for src, _ in sources):
                    break
                start = max([now[r]] + [t for _, t in sources])
                if first[r] is None:
                    first[r] = start
                stop = start + (p.action_cost(ops, price) if not cost else sum(price(c) for c in ops))
                done = start
                for c in ops:
                    done += price(c)
                    early = p.send == "eager" and c is not ops[-1]
                    end[(c.stage, "G" if c.kind in "BI" else c.kind, c.mb)] = min(done, stop) if early else stop
                last[r] = now[r] = stop
                at[r] += len(ops)
                moved = True
    need(all(at[r] == len(p.compute[r]) for r in range(p.nrank)), "the compute orders wait for each other")
    return max(last), max(last[r] - first[r] for r in range(p.nrank))


class Use:
    """How c uses a slot of its rank: it fills it, reads it (fills is False), or leaves what it has
    filled (fills is None). last: the slot is free after it."""

    def __init__(self, c, slot, tensor, fills, last):
        self.c, self.slot, self.tensor, self.fills, self.last = c, slot, tensor, fills, last


def uses_of(p, r):
    """Each use of a slot of rank r, in issue order. Checks that a slot holds what its pool is for."""
    pools = p.json["rank"][r]["pools"]
    need([q["first"] for q in pools] == [sum(o["count"] for o in pools[:i]) for i in range(len(pools))],
         "rank", r, "pools are not one run of slots")
    pool = [q for q in pools for _ in range(q["count"])]
    uses = []

    def use(c, slot, cls, stage, tensor, fills, last):
        need(slot is not None and slot < len(pool), c, "has no", cls, "slot")
        q = pool[slot]
        need(q["class"] == cls, c, "uses slot", slot, "of class", q["class"], "as", cls)
        size = {"act": "act", "host": "act", "gout": "gout"}.get(cls, "boundary")
        if p.json["sized"]:
            bytes_ = p.stages[stage][size]
            if cls == "keep":
                bytes_ = p.stages[stage - 1]["boundary"] if stage else 0
            need(q["bytes"] == bytes_, c, "puts", bytes_, "bytes in", q)
        else:
            need(q["stage"] == stage, c, "shares a pool of another stage's size", q)
        uses.append(Use(c, slot, tensor, fills, last))

    for c in p.lists[r]:
        if c.kind == "U":
            need((c.act, c.gout, c.src, c.dst) == (None,) * 4, c, "has slots")
            continue
        key = (c.stage, c.mb)
        into = c.stage + (-1 if c.forward else 1)   # where the tensor read comes from
        outof = c.stage + (1 if c.forward else -1)  # where the tensor written goes
        if c.on == 2:
            need((c.gout, c.src, c.dst) == (None,) * 3, c, "has slots of an op")
            use(c, c.act, "act", c.stage, ("stash",) + key, c.kind == "LOAD", True)
            if not c.away:
                use(c, c.keep, "host", c.stage, ("stash",) + key, c.kind == "OFF", True)
            continue
        if c.comm:
            need(c.act is None and c.gout is None, c, "has a stash")
            far = outof if c.send else into
            y = min(c.stage, far)  # the stage whose output passes this boundary
            slot, cls, other = (c.src, "out", c.dst) if c.send else (c.dst, "in", c.src)
            need(other is None, c, "uses both ends")
            use(c, slot, cls, y, ("Y" if c.forward else "G", y, c.mb), not c.send, True)
            continue
        again = key in p.again
        need((c.keep is not None) == (again and c.kind in "FR"), c, "keep slot")
        if c.keep is not None:
            use(c, c.keep, "keep", c.stage, ("input",) + key, c.kind == "F", c.kind == "R")
        if (again or (p.only_forward and p.slices == 1)) and c.kind == "F":
            use(c, c.act, "act", c.stage, ("work",) + key, True, False)
            use(c, c.act, "act", c.stage, ("work",) + key, None, True)
        elif p.only_forward:  # read by the slices behind it, all left by the last
            use(c, c.act, "act", c.stage, ("stash",) + key, True, False)
            for d in p.compute[r] if c.mb % p.slices == p.slices - 1 else []:
                if d.stage == c.stage and d.mb // p.slices == c.mb // p.slices:
                    use(c, d.act, "act", c.stage, ("stash", d.stage, d.mb), None, True)
        else:
            use(c, c.act, "act", c.stage, ("stash",) + key, c.kind in "FR", c.kind in "BW")
        if c.kind == "R":
            need(c.src is None and c.gout is None and (c.dst is not None) == (c.stage + 1 < p.nstage), c, "slots")
            if c.dst is not None:
                use(c, c.dst, "local", c.stage, ("nobody",) + key, True, False)
                use(c, c.dst, "local", c.stage, ("nobody",) + key, None, True)
            continue
        if c.kind in "IW":
            use(c, c.gout, "gout", c.stage, ("gout",) + key, c.kind == "I", True)
        else:
            need(c.gout is None, c, "has a gout slot")
        reads = c.kind != "W" and 0 <= into < p.nstage
        writes = c.kind != "W" and 0 <= outof < p.nstage
        need((c.src is not None) == reads and (c.dst is not None) == writes, c, "boundary slots")
        what = "Y" if c.forward else "G"
        if reads:
            y = min(c.stage, into)
            use(c, c.src, "in" if p.rank_of(into) != r else "local", y, (what, y, c.mb), False, True)
        if writes:
            y = min(c.stage, outof)
            use(c, c.dst, "out" if p.rank_of(outof) != r else "local", y, (what, y, c.mb), True, False)

    return uses


def check_waits(p):
    """Waits and the order of queues alone order whatever has to be in order: the start of the step,
    each two uses of a slot of which one fills it, and the end of the step. uses_of is in issue order,
    so what is in this order in all runs is right in all if it is right in one (check_slots)."""
    for r in range(p.nrank):
        check_rank_waits(p, r)


def check_rank_waits(p, r):
    known, users = p.clocks[r], {}
    for c in p.lists[r]:
        need(p.over(c, clocks.START), c, "does not wait for the start of the step")
        need(known.knows(len(p.lists[r]), c.index), "the end of the step does not wait for", c)
    for b in uses_of(p, r):
        for a in users.setdefault(b.slot, []):
            need(a.c is b.c or not (a.fills or b.fills) or known.knows(b.c.index, a.c.index), b.c, "does not wait for",
                 a.c, "that uses its slot", b.slot)
        users[b.slot].append(b)


def check_slots(p, rng, slow=()):
    """Runs with random durations, some ops very slow, and looks into the slots: nothing is
    overwritten, read too early, or read as something else."""
    longest = rng.choice((2, 10, 100))
    when = run(p, rng, lambda c: 1000000 if c in slow else rng.randint(1, longest),
               together=p.send != "eager")
    lent = {}  # (rank, slot) -> [((start, end), c) of its OFFs and LOADs, by rank]
    for r in range(p.nrank):
        for c in p.copy[r]:
            if c.away:
                lent.setdefault((c.peer, c.keep), []).append((when[c], c))
        events = []  # (time, 0 ends before 1 starts, what, use)
        for u in uses_of(p, r):
            start, end = when[u.c]
            if u.fills is not None:
                events.append((start, 1, "fill" if u.fills else "hold", u))
            events.append((end, 0, "filled" if u.fills else "left" if u.fills is None else "empty" if u.last else "release", u))
        holds = {}  # slot -> [tensor, complete?, readers]
        for _, _, what, u in sorted(events, key=lambda e: (e[0], e[1])):
            c, slot, tensor = u.c, u.slot, u.tensor
            if what == "fill":
                need(slot not in holds, c, "overwrites slot", slot, "that holds", holds.get(slot))
                holds[slot] = [tensor, False, 0]
                continue
            need(slot in holds and holds[slot][0] == tensor, c, "wants", tensor, "in slot", slot, "which holds",
                 holds.get(slot))
            if what == "filled":
                holds[slot][1] = True
            elif what == "left":
                del holds[slot]
            elif what == "hold":
                need(holds[slot][1], c, "reads slot", slot, "before it is full")
                holds[slot][2] += 1
            else:
                holds[slot][2] -= 1
                if what == "empty":
                    need(holds[slot][2] == 0, c, "gives back slot", slot, "while it is read")
                    del holds[slot]
        need(not holds, "rank", r, "ends with full slots", holds)
    check_guests(p, lent)


def check_guests(p, lent):
    """A slot for guests is of its class and size, and is filled and emptied in turn; each is used."""
    for r, rank in enumerate(p.json["rank"]):
        slots = [q["first"] + i for q in rank["pools"] if q["class"] == "guest" for i in range(q["count"])]
        need(sorted(s for q, s in lent if q == r) == sorted(slots), "rank", r, "guests", slots)
        need(rank.get("guests", 0) == len(slots), "rank", r, "guests", rank.get("guests"), "should be", len(slots))
    for (r, slot), uses in lent.items():
        q = [q for q in p.json["rank"][r]["pools"] if q["first"] <= slot < q["first"] + q["count"]][0]
        free, holds = 0, None
        for (start, end), c in sorted(uses, key=lambda u: u[0]):
            need(c.rank == uses[0][1].rank, c, "and", uses[0][1], "share slot", slot, "of rank", r)
            need(start >= free, c, "starts while slot", slot, "of rank", r, "is in use")
            need(holds == (None if c.kind == "OFF" else (c.stage, c.mb)), c, "finds", holds, "in slot", slot, "of rank", r)
            if p.json["sized"]:
                need(q["bytes"] == p.stages[c.stage]["act"], c, "and", q)
            free, holds = end, (c.stage, c.mb) if c.kind == "OFF" else None
        need(holds is None, "slot", slot, "of rank", r, "is full in the end")


def check(p, rng, rounds=2):
    check_tables(p)
    check_waits(p)
    check_times(p, rng)
    every = [c for l in p.lists for c in l]
    for _ in range(rounds):
        check_slots(p, rng, set(rng.sample(every, min(len(every), rng.randint(0, 2)))))

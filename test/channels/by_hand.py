# SPDX-License-Identifier: MIT
"""Random orders with transfers by hand: pipec says of each what a machine says that carries the lists out.

usage: by_hand.py PIPEC DIRECTORY SEED COUNT

usage: by_hand.py PIPEC DIRECTORY SEED COUNT models

The machine: a rank runs its ops in the order of the text, each once its RECVs are done. A wait holds up all that is
below it until all transfers above it are done. The transfers form one queue, or those that --channels says. A transfer
starts once the one before it in its queue is done and the ops above it have ended, a group once that holds of all of its
transfers, whatever their queues. A transfer is done once the other end has started, or a SEND once there is room for its
message in the buffer, a group once all of its transfers are. The n-th SEND from a to b meets the n-th RECV of b from a; with tags, that of its tensor. Room is given
in the order of the text; a message that is larger than the buffer waits for its RECV, and so do those below it, each for
room or its own RECV. With `models` each order is under a model at random, and so is the least buffer. Without, the
program of each order that completes is asked, too: it is read back from JSON, and in it an op waits for all transfers
above the last wait above it.
"""
import json
import os
import random
import re
import subprocess
import sys


SIZES = 3  # of messages, in bytes: 1 to this


def ops_in_some_order(rng, stages, mbs, place):
    """F and B of all stages and microbatches, in a random order that respects the data, by rank."""
    done, order = set(), {}
    every = [(k, s, m) for k in "FB" for s in range(stages) for m in range(mbs)]
    while every:
        free = [(k, s, m) for k, s, m in every
                if (k == "F" and (s == 0 or ("F", s - 1, m) in done)) or
                (k == "B" and ("F", s, m) in done and (s == stages - 1 or ("B", s + 1, m) in done))]
        op = rng.choice(free)
        every.remove(op)
        done.add(op)
        order.setdefault(place[op[1]], []).append(op)
    return order


def ends(op, stages, place):
    """The RECV and the SEND of an op: (kind, tensor, peer), or None."""
    kind, s, m = op
    before, after = (s - 1, s + 1) if kind == "F" else (s + 1, s - 1)
    here = place[s]
    recv = send = None
    if 0 <= before < stages and place[before] != here:
        recv = ("recv", (kind, before, m), place[before], op)
    if 0 <= after < stages and place[after] != here:
        send = ("send", (kind, s, m), place[after], op)
    return recv, send


def with_transfers(rng, ops, stages, place):
    """Items of a rank: ("op", op), ("wait",), or ("move", [transfers])."""
    calm = rng.random() < 0.7  # all transfers of a place are one group
    far = 0 if calm else rng.choice([0, 1, 2])
    at = [[] for _ in range(len(ops) + 1)]
    for i, op in enumerate(ops):
        recv, send = ends(op, stages, place)
        if recv:
            at[max(0, i - rng.randint(0, far))].append(recv)
        if send:
            at[min(len(ops), i + 1 + rng.randint(0, far))].append(send)
    items = []
    for i in range(len(ops) + 1):
        rng.shuffle(at[i])
        while at[i]:
            n = len(at[i]) if calm else rng.randint(1, len(at[i])) if rng.random() < 0.5 else 1
            if rng.random() < 0.3:
                items.append(("wait",))
            items.append(("move", at[i][:n]))
            at[i] = at[i][n:]
        if rng.random() < 0.15:
            items.append(("wait",))
        if i < len(ops):
            items.append(("op", ops[i]))
    return items


def text(lists, stages, mbs, place):
    """The schedule. A move of one transfer is written with and without a group by turns."""
    ranks = len(lists)
    lines = ["schedule by_hand() {", f"  ranks {ranks}",
             f"  pipe net stages {stages} mbs {mbs} place s -> "
             + ("s" if stages == ranks else f"s < {ranks} ? s : {2 * ranks - 1}-s")]
    for r in range(ranks):
        body = []
        for item in lists[r]:
            if item[0] == "op":
                kind, s, m = item[1]
                body.append(f"{kind}[stage {s}]({m})")
            elif item[0] == "wait":
                body.append("wait")
            else:
                moves = [f"{k} {op[0]}[stage {op[1]}]({op[2]})" for k, _, _, op in item[1]]
                body.append(moves[0] if len(moves) == 1 else "group { " + "  ".join(moves) + " }")
        lines.append(f"  order r in {r}..{r + 1} {{ " + "  ".join(body) + "  U }")
    return "\n".join(lines + ["}", ""])


def size(tensor):
    """Bytes of a message, as the `bytes` clause of `sized` says: of the boundary that it crosses."""
    kind, s, _ = tensor
    return (s if kind == "F" else s - 1) % SIZES + 1


def sized(schedule):
    return schedule.replace("\n  order", "\n  bytes s { boundary = s %% %d + 1 }\n  order" % SIZES, 1)


def carry_out(lists, channels="rank", room=0, in_bytes=False):
    """completes, deadlock or matching."""
    ranks = len(lists)
    ends = [(r, i, j) for r in range(ranks) for i, t in enumerate(lists[r]) if t[0] == "move" for j in range(len(t[1]))]

    def what(end):
        return lists[end[0]][end[1]][1][end[2]]

    def queue(end):
        kind, _, peer, _ = what(end)
        return {"rank": 0, "pair": peer, "edge": (peer, kind), "tagged": end}[channels]

    def load(end):
        return size(what(end)[1]) if in_bytes else 1

    pairs = {}  # (from, to) -> its SENDs and its RECVs, as they stand
    for x in ends:
        kind, _, peer, _ = what(x)
        pairs.setdefault((x[0], peer) if kind == "send" else (peer, x[0]), ([], []))[kind == "recv"].append(x)
    met, above = {}, {}
    for sends, recvs in pairs.values():
        for k, x in enumerate(sends):
            y = next(y for y in recvs if what(y)[1] == what(x)[1]) if channels == "tagged" else recvs[k]
            met[x], met[y], above[x] = y, x, sends[:k]
    over, posted = set(), set()  # ops and waits (rank, item), and ends; ends that have begun

    def same(x):
        return what(x)[1] == what(met[x])[1]

    def received(x):  # out of the buffer, or never in it
        return met[x] in posted and same(x)

    def has_room(x):
        if not room or load(x) > room or any(y not in over and not received(y) for y in above[x]):
            return False
        if channels != "tagged" and any(y not in over for y in above[x]):
            return False
        return sum(load(y) for y in above[x] if not received(y)) + load(x) <= room

    def done(r, i):
        return all((r, i, j) in over for j in range(len(lists[r][i][1]))) if lists[r][i][0] == "move" else (r, i) in over

    together = {x: [y for y in ends if y[:2] == x[:2]] for x in ends}
    ahead = {x: [y for y in ends if y[0] == x[0] and y[1] < x[1] and queue(y) == queue(x)] for x in ends}
    moved = True
    while moved:
        moved = False
        for r in range(ranks):
            for i, item in enumerate(lists[r]):
                if item[0] == "move" or (r, i) in over:
                    continue
                held = [k for k in range(i) if lists[r][k][0] != "move" or item[0] == "wait"]
                reads = [y for x in ends if x[0] == r and what(x)[0] == "recv" and what(x)[3] == item[-1]
                         for y in together[x]]
                if all(done(r, k) for k in held) and all(y in over for y in reads):
                    over.add((r, i))
                    moved = True
        for x in ends:
            r, i, _ = x
            if x not in posted and all(y in over for z in together[x] for y in ahead[z]) and all(
                    done(r, k) for k in range(i) if lists[r][k][0] != "move"):
                posted.update(together[x])
                moved = True
            met_now = met[x] in posted and same(x) and (channels == "tagged" or all(map(received, above.get(x, []))))
            if x in posted and x not in over and (met_now or (what(x)[0] == "send" and has_room(x))):
                over.add(x)
                moved = True
    if all(done(r, i) for r in range(ranks) for i in range(len(lists[r]))):
        return "completes"
    return "matching" if any(x in posted and met[x] in posted and not same(x) for x in ends) else "deadlock"


def check_waits(pipec, path, lists):
    """The program of the text is that of its JSON; its waits. None, or what is wrong."""
    def emit(source):
        return subprocess.run([pipec, "--emit=json", source], check=True, capture_output=True, text=True).stdout

    def program(out):
        return [[{k: v for k, v in x.items() if k != "at"} for x in row["instr"]] for row in json.loads(out)["rank"]]

    out = emit(path)
    with open(path + ".json", "w") as f:
        f.write(out)
    if program(emit(path + ".json")) != program(out):
        return "another program is read back from JSON"
    for r, row in enumerate(program(out)):
        waits = {x["op"]: x.get("wait", 0) for x in row}
        moves = least = waited = 0
        for item in lists[r]:
            if item[0] == "move":
                moves += len(item[1])
            elif item[0] == "wait":
                least = moves
            else:
                kind, s, m = item[1]
                waited = max(waited, waits[f"{s}{kind}{m}"])
                if waited < least:
                    return f"rank {r}: {s}{kind}{m} does not wait for {least} transfers"
    return None


def most(lists, in_bytes):
    """With so much room nothing waits for it."""
    return sum(len(t[1]) for row in lists for t in row if t[0] == "move") * (SIZES if in_bytes else 1)


def least_in(said):
    """The least buffer that pipec names; None: no buffer cures it."""
    m = re.search(r"buffers (\d+) |at least (\d+) |--sends=buffered:(\d+)", said)
    return None if "no buffer cures it" in said else int(m[1] or m[2] or m[3]) if m else 0


def main():
    pipec, where, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    models = sys.argv[5:] == ["models"]
    rng = random.Random(seed)
    print("seed", seed)
    seen = {"completes": 0, "deadlock": 0, "matching": 0}
    hangs_on_room = 0
    path = os.path.join(where, "by_hand.pipe")
    for _ in range(count):
        ranks, mbs = rng.randint(2, 3), rng.randint(1, 3)
        folded = rng.random() < 0.4
        stages = 2 * ranks if folded else ranks
        place = [s if s < ranks else 2 * ranks - 1 - s for s in range(stages)]
        order = ops_in_some_order(rng, stages, mbs, place)
        lists = [with_transfers(rng, order[r], stages, place) for r in range(ranks)]
        channels, room, in_bytes = "rank", 0, False
        if models:
            channels = rng.choice(("rank", "pair", "edge", "tagged", "tagged"))
            room, in_bytes = rng.randint(0, 4), rng.random() < 0.5
        want = carry_out(lists, channels, room, in_bytes)
        with open(path, "w") as f:
            f.write(sized(text(lists, stages, mbs, place)))
        sends = "rendezvous" if room == 0 else "buffered:%d%s" % (room, "B" * in_bytes)
        got = subprocess.run([pipec, "--check", "--verify", "--channels=" + channels, "--sends=" + sends, path],
                             capture_output=True, text=True)
        verdict = "completes" if got.returncode == 0 else "deadlock" if "[deadlock]" in got.stderr \
            else "matching" if "[matching]" in got.stderr else got.stderr
        seen[want] += 1
        if verdict != want:
            print(open(path).read(), f"--channels={channels} --sends={sends}: pipec: {verdict}, the machine: {want}", sep="")
            sys.exit(1)
        wrong = check_waits(pipec, path, lists) if not models and want == "completes" else None
        if wrong:
            print(open(path).read(), wrong, sep="")
            sys.exit(1)
        if want != "matching" and room:
            least = next((k for k in range(most(lists, in_bytes) + 1)
                          if carry_out(lists, channels, k, in_bytes) == "completes"), None)
            said = least_in(got.stdout + got.stderr)
            hangs_on_room += least is not None and least > 0 and channels == "tagged"
            if said != least:
                print(open(path).read(), got.stdout, got.stderr,
                      f"--channels={channels} --sends={sends}: pipec: least {said}, the machine: {least}", sep="")
                sys.exit(1)
    print(", ".join(f"{n} {k}" for k, n in seen.items()) + ": all agree"
          + (f", {hangs_on_room} with tags hang on the room" if models else ""))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MIT
"""Random lists with transfers by hand: pipec says of each what a machine says that carries the lists out.

usage: by_hand.py PIPEC DIRECTORY SEED COUNT             under the model of the engines
       by_hand.py PIPEC DIRECTORY SEED COUNT models      under random models, each with its least buffer
       by_hand.py PIPEC DIRECTORY SEED COUNT PLANTED     models, up to the first of which PLANTED, a pipec with a wrong
                                                         prover, says something else; what each says is printed

The machine: a rank runs its ops in the order of its row, each once its RECVs are done. A WAIT holds up all cells below it
until all transfers above it are done. The transfers form one queue, or those that --channels says. A transfer starts once
the one before it in its queue is done and the ops above it have ended. A group starts once that holds of all its
transfers, whatever their queues. A transfer is done once the other end has started, or a SEND once there is room for its
message in the buffer; a group once all its transfers are. The n-th SEND from a to b meets the n-th RECV of b from a; with
tags, that of its tensor. Room is given in the order of the row. A message larger than the buffer waits for its RECV, and
so do those below it, each for room or its own RECV.
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


def cell(op, word=""):
    kind, s, m = op
    return f"{s}{word}{kind}{m}"


def text(lists):
    """The lists as a CSV file, a group in one cell."""
    def cells(item):
        if item[0] == "op":
            return cell(item[1])
        if item[0] == "wait":
            return "WAIT"
        return "+".join(cell(op, k.upper() + "_") for k, _, _, op in item[1])

    return "".join(",".join(cells(item) for item in row) + "\n" for row in lists)


def size(tensor):
    """Bytes of a message, as `profile` has it: of the boundary that it crosses."""
    kind, s, _ = tensor
    return (s if kind == "F" else s - 1) % SIZES + 1


def profile(path, stages, sizes=SIZES):
    """Writes a profile beside the file, in which messages have bytes. Its option."""
    with open(path + ".json", "w") as f:
        json.dump({"pipe_profile": 1, "stages": [{"boundary": s % sizes + 1} for s in range(stages)]}, f)
    return f"--profile={path}.json"


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


def most(lists, in_bytes):
    """With so much room nothing waits for it."""
    return sum(len(t[1]) for row in lists for t in row if t[0] == "move") * (SIZES if in_bytes else 1)


def least_in(said):
    """The least buffer that pipec names; None: no buffer size lets the lists complete."""
    m = re.search(r"buffers (\d+) |at least (\d+) |--sends=buffered:(\d+)", said)
    return None if "no buffer size lets the lists complete" in said else int(m[1] or m[2] or m[3]) if m else 0


def draw(rng, models):
    """Lists, their stages, and the model: channels, room, whether it is in bytes."""
    ranks, mbs = rng.randint(2, 3), rng.randint(1, 3)
    folded = rng.random() < 0.4
    stages = 2 * ranks if folded else ranks
    place = [s if s < ranks else 2 * ranks - 1 - s for s in range(stages)]
    order = ops_in_some_order(rng, stages, mbs, place)
    lists = [with_transfers(rng, order[r], stages, place) for r in range(ranks)]
    if not models:
        return lists, stages, ("rank", 0, False)
    return lists, stages, (rng.choice(("rank", "pair", "edge", "tagged", "tagged")), rng.randint(0, 4), rng.random() < 0.5)


def run(pipec, path, stages, model, *options, env=None):
    channels, room, in_bytes = model
    sends = "rendezvous" if room == 0 else "buffered:%d%s" % (room, "B" * in_bytes)
    return subprocess.run([pipec, "--check", *options, "--channels=" + channels, "--sends=" + sends,
                           profile(path, stages), path], capture_output=True, text=True, env={**os.environ, **(env or {})})


SIGNS = {"the certificate of check_channels": "refused", "[deadlock]": "deadlock", "[matching]": "matching",
         "internal error": "an internal error"}


def verdict_of(got):
    return "completes" if got.returncode == 0 else next((SIGNS[sign] for sign in SIGNS if sign in got.stderr), got.stderr)


def find_planted(pipec, planted, where, rng, count):
    path = os.path.join(where, "planted.csv")
    for _ in range(count):
        lists, stages, model = draw(rng, True)
        with open(path, "w") as f:
            f.write(text(lists))
        want = carry_out(lists, *model)
        said = verdict_of(run(planted, path, stages, model, env={"PIPE_NO_VERIFY": "1"}))
        if said != want:
            right = verdict_of(run(pipec, path, stages, model))
            verified = verdict_of(run(planted, path, stages, model, "--verify"))
            print(f"machine: {want}, pipec: {right}, planted: {said}, verified: {verified}")
            return
    print("found in no lists")


def main():
    pipec, where, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rng = random.Random(seed)
    if sys.argv[5:] not in ([], ["models"]):
        find_planted(pipec, sys.argv[5], where, rng, count)
        return
    models = sys.argv[5:] == ["models"]
    print("seed", seed)
    seen = {"completes": 0, "deadlock": 0, "matching": 0}
    hangs_on_room = 0
    path = os.path.join(where, "by_hand.csv")
    for _ in range(count):
        lists, stages, model = draw(rng, models)
        channels, room, in_bytes = model
        want = carry_out(lists, *model)
        with open(path, "w") as f:
            f.write(text(lists))
        got = run(pipec, path, stages, model, "--verify")
        seen[want] += 1
        if verdict_of(got) != want:
            print(open(path).read(), f"{model}: pipec: {verdict_of(got)}, the machine: {want}", sep="")
            sys.exit(1)
        if want != "matching" and room:
            least = next((k for k in range(most(lists, in_bytes) + 1)
                          if carry_out(lists, channels, k, in_bytes) == "completes"), None)
            said = least_in(got.stdout + got.stderr)
            hangs_on_room += least is not None and least > 0 and channels == "tagged"
            if said != least:
                print(open(path).read(), got.stdout, got.stderr,
                      f"{model}: pipec: least {said}, the machine: {least}", sep="")
                sys.exit(1)
    print(", ".join(f"{n} {k}" for k, n in seen.items()) + ": all agree"
          + (f", {hangs_on_room} with tags hang on the room" if models else ""))


if __name__ == "__main__":
    main()

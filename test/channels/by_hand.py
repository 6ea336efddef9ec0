# SPDX-License-Identifier: MIT
"""Random orders with transfers by hand: pipec says of each what a machine says that carries the lists out.

usage: by_hand.py PIPEC DIRECTORY SEED COUNT

The machine: a rank runs its ops in the order of the text, each once its RECVs are done, and after a wait all
transfers above it. Its transfers form one queue. A transfer, or the group that it is in, starts once the one
before it in the queue is done and the ops above it have ended; it is done once the other end has started, a
group once all of its transfers are. The n-th SEND from a to b meets the n-th RECV of b from a.
"""
import os
import random
import subprocess
import sys


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


def carry_out(lists):
    """completes, deadlock or matching."""
    ranks = len(lists)
    met = {}  # transfer of a rank: (rank, item, member) -> the other end
    for a in range(ranks):
        for b in range(ranks):
            sends = [(a, i, j) for i, t in enumerate(lists[a]) if t[0] == "move"
                     for j, x in enumerate(t[1]) if x[0] == "send" and x[2] == b]
            recvs = [(b, i, j) for i, t in enumerate(lists[b]) if t[0] == "move"
                     for j, x in enumerate(t[1]) if x[0] == "recv" and x[2] == a]
            for x, y in zip(sends, recvs):
                met[x], met[y] = y, x

    def tensor(end):
        r, i, j = end
        return lists[r][i][1][j][1]

    over, posted, crossed = set(), set(), False  # items that are over; moves that have started
    moved = True
    while moved:
        moved = False
        for r in range(ranks):
            for i, item in enumerate(lists[r]):
                if (r, i) in over:
                    continue
                above = range(i)
                ops = all((r, k) in over for k in above if lists[r][k][0] == "op")
                moves = all((r, k) in over for k in above if lists[r][k][0] == "move")
                if item[0] == "wait":
                    go = ops and moves
                elif item[0] == "op":
                    waits = all((r, k) in over for k in above if lists[r][k][0] == "wait")
                    recv = [k for k in above if lists[r][k][0] == "move" and
                            any(x[0] == "recv" and x[3] == item[1] for x in lists[r][k][1])]
                    go = ops and waits and all((r, k) in over for k in recv)
                else:
                    if ops and moves and (r, i) not in posted:
                        posted.add((r, i))
                        moved = True
                    other = [met.get((r, i, j)) for j in range(len(item[1]))]
                    there = (r, i) in posted and all(o and o[:2] in posted for o in other)
                    go = there and all(tensor((r, i, j)) == tensor(o) for j, o in enumerate(other))
                if go:
                    over.add((r, i))
                    moved = True
    for r, i in posted:
        for j in range(len(lists[r][i][1])):
            o = met.get((r, i, j))
            crossed |= bool(o and o[:2] in posted and tensor((r, i, j)) != tensor(o))
    if all((r, i) in over for r in range(ranks) for i in range(len(lists[r]))):
        return "completes"
    return "matching" if crossed else "deadlock"


def main():
    pipec, where, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rng = random.Random(seed)
    print("seed", seed)
    seen = {"completes": 0, "deadlock": 0, "matching": 0}
    path = os.path.join(where, "by_hand.pipe")
    for _ in range(count):
        ranks, mbs = rng.randint(2, 3), rng.randint(1, 3)
        folded = rng.random() < 0.4
        stages = 2 * ranks if folded else ranks
        place = [s if s < ranks else 2 * ranks - 1 - s for s in range(stages)]
        order = ops_in_some_order(rng, stages, mbs, place)
        lists = [with_transfers(rng, order[r], stages, place) for r in range(ranks)]
        want = carry_out(lists)
        with open(path, "w") as f:
            f.write(text(lists, stages, mbs, place))
        got = subprocess.run([pipec, "--check", "--verify", path], capture_output=True, text=True)
        verdict = "completes" if got.returncode == 0 else "deadlock" if "[deadlock]" in got.stderr \
            else "matching" if "[matching]" in got.stderr else got.stderr
        seen[want] += 1
        if verdict != want:
            print(open(path).read(), f"pipec: {verdict}, the machine: {want}", sep="")
            sys.exit(1)
    print(", ".join(f"{n} {k}" for k, n in seen.items()) + ": all agree")


if __name__ == "__main__":
    main()

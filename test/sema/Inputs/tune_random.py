# SPDX-License-Identifier: MIT
# A tune clause that chooses among random orders takes the one whose program is shortest by itself.
#
#   tune_random.py PIPEC SCRATCH SEED PROGRAMS
#
# Orders respect the data; some have updates in the middle, split backwards, recomputation, actions of several ops or
# copies. What each takes as emitted is told by the JSON form of a schedule that has only it.
import json
import os
import random
import subprocess
import sys

pipec, scratch, seed, programs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)


def orders(ranks, mbs, kinds):
    """A random order of each rank, one stage a rank; kinds: of a microbatch in their order on a stage."""
    done, lists = set(), [[] for _ in range(ranks)]
    left = [(k, s, m) for s in range(ranks) for m in range(mbs) for k in range(len(kinds))]
    while left:
        def free(op):
            k, s, m = op
            if k > 0 and (k - 1, s, m) not in done:
                return False
            if k == 0:
                return s == 0 or (0, s - 1, m) in done
            grad = next(i for i, x in enumerate(kinds) if x in "BI")
            return kinds[k] not in "BI" or s == ranks - 1 or (grad, s + 1, m) in done
        op = rng.choice([x for x in left if free(x)])
        left.remove(op)
        done.add(op)
        lists[op[1]].append((kinds[op[0]], op[2]))
    return lists


def program():
    ranks, mbs, values = rng.randint(1, 3), rng.randint(2, 5), rng.randint(2, 4)
    split, inner = rng.random() < 0.4, rng.random() < 0.5
    kinds = ["F"] + (["I", "W"] if split else ["B"]) + (["U"] if inner else [])
    way = "" if inner else rng.choice(("", "", "joined", "copies"))
    bodies = []
    for _ in range(values):
        body = []
        for r, ops in enumerate(orders(ranks, mbs, kinds)):
            words = []
            at = 0
            while at < len(ops):
                k, m = ops[at]
                pair = ops[at + 1] if at + 1 < len(ops) else None
                if way == "joined" and k == "F" and pair and pair[0] in "BW" and pair[1] != m and rng.random() < 0.7:
                    words.append(f"overlap {{ F({m}) {pair[0]}({pair[1]}) }}")
                    at += 2
                    continue
                at += 1
                words.append(f"{k}({m})")
                if way == "copies" and k == "F" and rng.random() < 0.3:
                    words.append(f"OFF({m}) LOAD({m})")
            body.append(f"if r == {r} {{ " + " ".join(words) + " }")
        bodies.append(" ".join(body))
    head = [f"ranks {ranks}", f"pipe net stages {ranks} mbs {mbs} place s -> s",
            "time s { F = 10 + s  B = 20  I = 12  W = 8 + s  U = %d  FB = 25 + s  send = %d  OFF = 1  LOAD = 2 }" % (rng.choice((0, 7)), rng.choice((0, 3, 12)))]
    if inner:
        head.append("weights { B reads F }")
    return head, bodies, "" if inner else " U", ranks * mbs * len(kinds)


def text(head, bodies, end, tune):
    with open(os.path.join(scratch, "t.pipe"), "w") as f:
        f.write("schedule t() {\n" + "".join(f"  {h}\n" for h in head) + tune + "  order r {\n")
        for k, body in enumerate(bodies):
            f.write(f"    if k == {k} {{ {body} }}\n" if tune else f"    {body}\n")
        f.write(f"   {end}\n  }}\n}}\n")


def emitted():
    got = subprocess.run([pipec, "--verify", "--lowering=global", "--emit=json", "t.pipe"], capture_output=True, text=True, cwd=scratch)
    if got.returncode:
        if got.returncode != 1:
            sys.exit(f"seed {seed}: {scratch}/t.pipe: {got.stderr}")
        return None
    return json.loads(got.stdout)["makespan"]


os.makedirs(scratch, exist_ok=True)
done = differ = 0
while done < programs:
    head, bodies, end, _ = program()
    alone = []
    for body in bodies:
        text(head, [body], end, "")
        alone.append(emitted())
    text(head, bodies, end, f"  tune k in 0..{len(bodies)} by makespan()\n")
    got, want = emitted(), min((x for x in alone if x is not None), default=None)
    if got != want:
        sys.exit(f"seed {seed}, program {done}: tuned {got}, alone {alone}: {scratch}/t.pipe")
    done += want is not None
    differ += want is not None and alone[0] != want
print(f"seed {seed}: {done} tuned, {differ} to another value than the first")

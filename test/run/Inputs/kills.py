# SPDX-License-Identifier: MIT
# kills.py SEED KILLS RANKS MBS DIR COMMAND...: trains with COMMAND (tiny_train with a schedule whose rank r
# has stage r), again and again: each run goes on from the last checkpoint and is killed as by kill -9, at
# a random instruction of a random rank, or while it writes a checkpoint, or from outside at a random
# moment, until so many were killed. Every loss that any of them printed, and the weights in the end, must
# be those of a run that nothing happened to.
import os
import random
import shutil
import subprocess
import sys
import time

STEPS = 12
seed, kills, nrank, nmb, folder, command = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5], sys.argv[6:]
draw = random.Random(seed)


def point():
    rank = draw.randrange(nrank)
    op = draw.choice(["F", "B", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "U", "SAVE", "COMMIT"])
    if op in ("SEND_F", "RECV_B") and rank == nrank - 1 or op in ("RECV_F", "SEND_B") and rank == 0:
        op = "F"
    if op == "COMMIT":
        return op, 0
    return (op if op in ("U", "SAVE") else "%d%s%d" % (rank, op, draw.randrange(nmb))), rank


def start(more, fault):
    env = dict(os.environ, PIPE_FAULT=fault)
    return subprocess.Popen(command + ["--steps", str(STEPS)] + more, env=env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(run, timeout=60):
    try:
        out, err = run.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        run.kill()
        print("seed %s: a run hangs" % seed)
        sys.exit(1)
    return out.splitlines(), err


want, err = finish(start([], ""))
assert len(want) == STEPS + 1 and want[-1].startswith("weights"), err
loss = dict(line.rsplit(" ", 1) for line in want[:-1])


def wrong(lines, why):
    print("seed %s, kill %d: %s" % (seed, killed, why))
    print("\n".join(lines))
    sys.exit(1)


killed, finished, resumed = 0, 0, 0
while killed < kills:
    shutil.rmtree(folder, ignore_errors=True)
    more = ["--checkpoint", folder, "--every", "2", "--keep", "2", "--resume"]
    step, left = 0, kills - killed
    while True:
        op, rank = point()
        at = step + draw.randrange(6)
        outside = draw.randrange(5) == 0
        if op in ("SAVE", "COMMIT"):
            at += 2 - at % 2
        last = left <= 0 or draw.randrange(8) == 0
        run = start(more, "" if last or outside else "%s:%d:%d" % (op, rank, at))
        if outside and not last:
            time.sleep(draw.random() * 0.02)
            run.kill()
        lines, err = finish(run)
        resumed += step > 0 and bool(lines)
        for line in lines:
            if line.startswith("loss"):
                name, value = line.rsplit(" ", 1)
                if loss[name] != value:
                    wrong(lines, "loss of " + name)
                step = int(name.split()[1]) + 1
        if lines and lines[-1].startswith("weights"):
            if lines[-1] != want[-1]:
                wrong(lines, "weights")
            finished += 1
            break
        if last:
            wrong(lines, "an undisturbed run fails: " + err)
        killed += 1
        left -= 1
        partial = [n for n in os.listdir(folder)] if os.path.isdir(folder) else []
        if sum(n.endswith(".partial") and n.startswith("step") for n in partial) > 1:
            wrong(partial, "what was left unfinished is not removed")
print("seed %s: %d kills, %d runs resumed, %d trainings ended as the undisturbed one"
      % (seed, killed, resumed, finished))

# SPDX-License-Identifier: MIT
# kills.py SEED KILLS DIR PIPEC PROGRAM... -- SCHEDULE...: trains with PROGRAM SCHEDULE (tiny_train, or mpirun with as many
# processes as the schedule has ranks), again and again: each run goes on from the last checkpoint and is killed as by
# kill -9, at a random instruction of those that `PIPEC SCHEDULE` dumps, or while it writes a checkpoint, or from outside
# at a random moment (of processes one), until so many were killed, those from outside not counted. Every loss that any
# of them printed, and the weights in the end, must be those of a run that nothing happened to; and no run may end in
# another way than by its kill.
import collections
import os
import random
import re
import shutil
import subprocess
import sys
import time

STEPS = 12
seed, kills, folder, pipec = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
cut = sys.argv.index("--")
schedule = sys.argv[cut + 1:]
command = sys.argv[5:cut] + schedule + ["--steps", str(STEPS)]
processes = any("mpirun" in word for word in command)
draw = random.Random(seed)


def instructions():
    found, rank = [], None
    dump = subprocess.run([pipec, "--dump-after=lower"] + schedule, text=True, capture_output=True, check=True).stdout
    for line in dump.splitlines():
        if m := re.match(r"rank (\d+):", line):
            rank = int(m.group(1))
        elif m := re.match(r"  (\d+(?:SEND_F|SEND_B|RECV_F|RECV_B|OFF|LOAD|REDUCE|[FBIWRU])\d*)(?: |$)", line):
            found.append((m.group(1), rank))
    return found


def children(pid):
    """Processes below pid, with their names, and whether they have ended and nobody has waited for them."""
    below, found, todo = collections.defaultdict(list), [], [pid]
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % p) as f:
                name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
        except OSError:  # it has just ended
            continue
        below[int(rest.split()[1])].append((int(p), name, rest.split()[0] == "Z"))
    while todo:
        more = below[todo.pop()]
        found += more
        todo += [p for p, _, _ in more]
    return found


def ranks(run, ended=False):
    return [p for p, name, over in children(run.pid) if name.startswith("tiny_train") and over == ended]


def end(pids):
    for p in pids:
        try:
            os.kill(p, 9)
        except ProcessLookupError:
            pass


def start(more, fault):
    return subprocess.Popen(command + more, env=dict(os.environ, PIPE_FAULT=fault), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(run):
    """Lines, messages, exit status, and whether all had ended but mpirun, which some never do, and was killed for it."""
    idle, alone, limit = 0, False, time.monotonic() + 600
    while True:
        try:
            out, err = run.communicate(timeout=1)
            return out.splitlines(), err, run.returncode, alone
        except subprocess.TimeoutExpired:
            idle = idle + 1 if processes and ranks(run, ended=True) and not ranks(run) else 0
            alone = alone or idle > 2
            hangs = time.monotonic() > limit
            if idle > 2 or hangs:
                end([p for p, _, _ in children(run.pid)] + [run.pid])
            if hangs:
                print("seed %s, kill %d: a run hangs" % (seed, killed))
                sys.exit(1)


def wrong(why, lines, err):
    print("seed %s, kill %d: %s" % (seed, killed, why))
    print("\n".join(lines) + "\n" + err)
    sys.exit(1)


def is_killed(status, err, outside):
    if not processes:
        return status == -9
    # mpirun: by the signal of the rank, or what another one says first; what it does to one that has not begun yet varies
    return status and outside or status in (128 + 9, 128 + 13, -9) or status == 75 and "lost: " in err


killed, finished, resumed = 0, 0, 0
points = instructions()
begun = time.monotonic()
want, err, _, _ = finish(start([], ""))
takes = time.monotonic() - begun
assert len(want) == STEPS + 1 and want[-1].startswith("weights"), err
loss = dict(line.rsplit(" ", 1) for line in want[:-1])
while killed < kills:
    shutil.rmtree(folder, ignore_errors=True)
    step, left = 0, kills - killed
    while True:
        (op, rank), what = draw.choice(points), draw.randrange(10)
        at, outside = step + draw.randrange(6), what < 2
        if what in (2, 3):
            op, rank, at = ("SAVE", rank, at + 2 - at % 2) if what == 2 else ("COMMIT", 0, at + 2 - at % 2)
        last = left <= 0 or draw.randrange(8) == 0
        run = start(["--checkpoint", folder, "--every", "2", "--keep", "2", "--resume"],
                    "" if last or outside else "%s:%d:%d" % (op, rank, at))
        if outside and not last:
            time.sleep(draw.random() * takes)
            victims = ranks(run) if processes else [run.pid]
            end([draw.choice(victims)] if victims else [])
        lines, err, status, alone = finish(run)
        if "writes no file of a checkpoint" in err:
            continue
        resumed += step > 0 and bool(lines)
        for line in lines:
            if line.startswith("loss"):
                name, value = line.rsplit(" ", 1)
                if loss[name] != value:
                    wrong("loss of " + name, lines, err)
                step = int(name.split()[1]) + 1
        if lines and lines[-1].startswith("weights") and (status == 0 or alone and status == -9):
            if lines[-1] != want[-1]:
                wrong("weights", lines, err)
            finished += 1
            break
        if last:
            wrong("an undisturbed run fails", lines, err)
        if not is_killed(status, err, outside):
            wrong("status %d after %s of rank %d in step %d" % (status, op, rank, at), lines, err)
        killed += not outside
        left -= not outside
        partial = os.listdir(folder) if os.path.isdir(folder) else []
        if sum(n.endswith(".partial") and n.startswith("step") for n in partial) > 1:
            wrong("what was left unfinished is not removed", partial, err)
print("seed %s: %d kills, %d runs resumed, %d trainings ended as the undisturbed one"
      % (seed, killed, resumed, finished))

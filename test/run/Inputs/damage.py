# SPDX-License-Identifier: MIT
# damage.py SEED DIR COMMAND...: what resuming from a checkpoint that somebody damaged says. COMMAND is
# tiny_train with a schedule of four stages. First named kinds of damage, with the message of each, then
# random ones: a byte changed, a file cut at any length. All of them are refused.
import os
import random
import shutil
import subprocess
import sys

seed, folder, command = sys.argv[1], sys.argv[2], sys.argv[3:]
draw = random.Random(seed)
whole, work = folder + "/whole", folder + "/work"


def train(where, steps, more=[]):
    run = subprocess.run(command + ["--steps", str(steps), "--checkpoint", where, "--every", "2", "--resume"] + more,
                         capture_output=True, text=True)
    return run.returncode, run.stdout.splitlines()[-1:], run.stderr.strip()


shutil.rmtree(folder, ignore_errors=True)
os.makedirs(folder)
train(whole, 4)
good = shutil.copytree(whole, folder + "/good") and train(folder + "/good", 6)
assert good[0] == 0


def attempt(change, more=[]):
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(whole, work)
    change(work + "/step-4.1/")
    return train(work, 6, more)


def edit(name, f):
    def change(at):
        data = bytearray(open(at + name, "rb").read())
        open(at + name, "wb").write(f(data))
    return change


def flip(i):
    def f(data):
        data[i] ^= 1
        return data
    return f


def tell(name, change, more=[]):
    code, _, err = attempt(change, more)
    print("%s: %d %s" % (name, code, err.replace(work + "/", "")))


tell("nothing", lambda at: None)
tell("a bit of a weight", edit("stage-2.safetensors", flip(-1)))
tell("a bit of a state", edit("stage-2.state.safetensors", flip(-64)))
tell("a bit of a head", edit("stage-2.safetensors", flip(60)))
tell("a bit of its length", edit("stage-2.safetensors", flip(7)))
tell("an older version", edit("manifest", lambda d: b"pipe checkpoint 1\nend 3ae912aeaf7f2102\n"))
tell("cut short", edit("stage-1.safetensors", lambda d: d[:-1]))
tell("cut to nothing", edit("stage-1.safetensors", lambda d: b""))
tell("too long", edit("stage-1.safetensors", lambda d: d + b"x"))
tell("no file", lambda at: os.remove(at + "stage-3.state.safetensors"))
tell("of another step", lambda at: shutil.copy(at + "../step-2.1/stage-0.safetensors", at + "stage-0.safetensors"))
tell("of another stage", lambda at: shutil.copy(at + "stage-1.safetensors", at + "stage-0.safetensors"))
tell("manifest", edit("manifest", flip(20)))
tell("no manifest", lambda at: os.remove(at + "manifest"))
tell("latest", edit("../latest", lambda d: b"step-x\n"))
tell("other stages", lambda at: None, ["-D", "P=2"])
tell("the one before", lambda at: shutil.rmtree(at), ["--checkpoint", work + "/step-2.1", "--every", "100", "--steps", "2"])

refused = 0
files = ["manifest", "../latest"] + ["stage-%d%s.safetensors" % (i, part) for i in range(4) for part in ("", ".state")]
for i in range(int(os.environ.get("DAMAGES", "150"))):
    name = draw.choice(files)
    size = os.path.getsize(whole + "/step-4.1/" + name)
    where = draw.randrange(size)
    bit = 1 << draw.randrange(8)

    def change(data):
        if i % 4 == 0:
            return data[:where]
        data[where] ^= bit
        return data

    code, last, err = attempt(edit(name, change))
    if code == 1 and "tiny_train: checkpoint: " in err:
        refused += 1
    else:
        print("seed %s, %d: %s, byte %d: %d %s %s" % (seed, i, name, where, code, last, err))
print("seed %s: %d refused" % (seed, refused))

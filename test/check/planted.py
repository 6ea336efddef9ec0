# SPDX-License-Identifier: MIT
"""Builds pipec with the planted mistakes of compiler/base/plant.h and says which tests' answers each changes.

usage: planted.py ROOT PIPEC LIBDIR CC PROOFS_TEST DIRECTORY

The answers are those of --check to the texts that the tests of test/check and test/channels refuse, and of the damaged
programs of proofs_test; where these stay, what by_hand.py says of random orders. A mistake is noticed where a verdict is
another: accepted or refused, with which errors. One that changes only notes, help or times has not been noticed, nor has
one with which pipec dies, but for those of DIES.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tools"))
import tree  # noqa: E402
from said import program, put, read  # noqa: E402


def texts(root, where):
    """Files of the tests, by name: .pipe files as they are, .test files split."""
    found = {}
    for folder in ("check", "channels"):
        base = os.path.join(root, "test", folder)
        for name in sorted(os.listdir(base)):
            path = os.path.join(base, name)
            if name.startswith("bad-") and name.endswith(".pipe"):
                found[name] = path
            elif name == "by-hand.test" or name.startswith("bad-") and folder == "check":
                for f, text in read(path)[1].items():
                    if f.endswith((".pipe", ".csv")):
                        put(where, os.path.join(name, f), program(f, text))
                        found[os.path.join(name, f) if f in found else f] = os.path.join(where, name, f)
    return found


def options(path):
    """What the first RUN line of a file gives pipec, or in a case of said.py the line for it."""
    with open(path) as f:
        found = re.search(r"\A.*%pipec (.*?)%s|^# pipec:(.*)", f.read(), re.M)
    words = (found.group(1) or found.group(2) or "").split() if found else ["--check"]
    return [w for w in words if "%" not in w]


def questions(files):
    """What is asked: a name and the arguments of pipec, or None and what proofs_test damages."""
    out = []
    for f in files:
        given = options(f)
        with open(f) as text:
            by_hand = "by-hand" in f and f.endswith(".csv")
        for more in [["--channels=rank"], ["--channels=tagged"]] if by_hand else [[]]:
            out.append((" ".join([os.path.basename(f)] + more), given + more + [f]))
    for how in ("swap", "peer", "lost", "last", "edge", "order", "channel", "sums"):
        out.append((how, None))
    return out


def answer(pipec, proofs, question, plant=None):
    name, arguments = question
    command = [pipec] + arguments if arguments else [proofs, name]
    r = subprocess.run(command, capture_output=True, text=True, env=environment(plant), errors="replace")
    return name, r.returncode, r.stdout, r.stderr


def environment(plant):
    """For one of the programs with all mistakes: which of them is made."""
    env = dict(os.environ, PIPE_STDLIB=os.environ["PLANTED_STDLIB"])
    return env if plant is None else dict(env, PIPE_PLANT=str(plant))


# Mistakes that let through what the code behind the proof cannot be given: on which text pipec dies, and what it says:
# the assertion of code that does not share the mistake, or nothing.
DIES = {
    "DEPS_COMPLETE": ("missing-w.pipe", "slots.c"),
    "COPIES": ("between.pipe", ""),
}


def verdict(answer):
    """Whether it was refused, by which errors, and what was proved; None: it died. The validator, which every compile
    asks and which shares nothing with the code of the mistake, refuses tables as an internal error: an answer, too.
    So is the internal error of a proof, which names a rank and no line of C; proofs_test prints it."""
    _, code, out, err = answer
    if code < 0 or re.search(r"internal error: \S+\.c:\d", out):
        tables = re.search(r"internal error: the emitted tables: .*", err)
        return (code, tables.group()) if tables else None
    said = re.findall(r"^.*error: .*|^(?:proved|all M|refuted|\w+: transfers).*", err + out, re.M)
    return code, said


PLANT_C = """#include <stdlib.h>
int pipe_plant = -1;
__attribute__((constructor)) static void choose(void) {
  const char *plant = getenv("PIPE_PLANT");
  pipe_plant = plant ? atoi(plant) : -1;
}
"""


def main():
    root, pipec, libdir, cc, proofs, where = sys.argv[1:]
    os.makedirs(where)
    flags = ["-O1", "-DNDEBUG", "-DPIPE_PLANT", "-D_POSIX_C_SOURCE=200809L"] + tree.include_flags(root)
    libs = subprocess.run(["pkg-config", "--libs", "jansson"], check=True, capture_output=True, text=True).stdout.split()

    def build(source):
        target = os.path.join(where, os.path.basename(source) + ".o")
        subprocess.run(cc.split() + flags + ["-c", source, "-o", target], check=True)
        return target

    def link(objects, name):
        target = os.path.join(where, name)
        archives = [os.path.join(libdir, archive) for archive in ("libpipec.a", "libpiperun.a")]
        subprocess.run(cc.split() + objects + archives + libs + ["-lm", "-o", target], check=True)
        return target

    with open(tree.source(root, "plant.h")) as f:
        plants = re.findall(r"^  PLANT_(\w+)", f.read(), re.M)
    sources = {n: set(re.findall(r"PLANTED\((\w+)\)", open(n).read())) for n in tree.files(root, ".c")}
    with open(os.path.join(where, "plant.c"), "w") as f:
        f.write(PLANT_C)
    objects = [build(n) for n in [f.name] + sorted(n for n in sources if sources[n])]
    planted = (link(objects + [build(tree.source(root, "main.c"))], "pipec"),
               link(objects + [build(os.path.join(root, "test", "check", "proofs_test.c"))], "proofs"))
    files = texts(root, where)
    asked = [(q, verdict(answer(pipec, proofs, q))) for q in questions(files.values())]
    assert None not in [right for _, right in asked], "pipec crashes without a mistake"
    missed = 0
    for number, plant in enumerate(plants):
        changed = None
        dies, said = DIES.get(plant, (None, None))
        for q, right in asked:  # up to the first that notices
            got = answer(*planted, q, number)
            if verdict(got) not in (None, right) or (q[0] == dies and got[1] < 0 and said in got[3]):
                changed = q[0]
                asked.remove((q, right))  # is asked first from now on: the same notices mistakes that are neighbours
                asked.insert(0, (q, right))
                break

        def verifier_stops(name, source):
            """Is a text accepted, and its program refused by code that does not share the mistake?"""
            _, code, _, err = answer(*planted, (name, ["--check", "--verify", files[name]]), number)
            return code < 0 and source in err

        if plant == "OVER_LIMIT" and not verifier_stops("bad-limit.pipe", "verify_stashes.c"):
            changed = None
        if plant == "ORDER_CYCLE":  # who is named in words is not what it is about
            changed = "deadlock-circle.pipe" if verifier_stops("deadlock-circle.pipe", "verify_cycle.c") else None
        if not changed and plant.startswith("LISTS"):  # seldom enough to be asked only then
            random = [sys.executable, os.path.join(root, "test", "channels", "by_hand.py"), planted[0], where, "1", "400"]
            if subprocess.run(random, capture_output=True, env=environment(number)).returncode:
                changed = "by_hand.py"
        if not any(plant in of for of in sources.values()):
            changed = None
        missed += not changed
        print(f"{plant}: {'noticed by ' + changed if changed else 'NOT NOTICED'}")
    print(f"{len(plants)} planted, {missed} not noticed")


main()

# SPDX-License-Identifier: MIT
"""Builds pipec with each planted mistake of compiler/base/plant.h and says which tests' answers it changes.

usage: planted.py ROOT PIPEC LIBDIR CC PROOFS_TEST DIRECTORY

The answers are those of --check (and --for-all, where a line asks for it) to the texts that the tests of
test/check, test/channels and test/all_m refuse, and of the damaged programs of proofs_test; where these stay,
what by_hand.py says of random orders. A mistake is noticed where a verdict is another: accepted or refused, with which
errors. One that changes only notes, help or times has not been noticed, nor has one with which pipec dies, but for those
of DIES.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tools"))
import tree  # noqa: E402


def texts(root, where):
    """Files of the tests: .pipe files as they are, .test files split."""
    found = []
    for folder in ("check", "channels", "all_m"):
        base = os.path.join(root, "test", folder)
        for name in sorted(os.listdir(base)):
            path = os.path.join(base, name)
            if name.startswith("bad-") and name.endswith(".pipe"):
                found.append(path)
            elif name in ("by-hand.test", "all_m.test", "copies.test", "bad-offload.test", "bad-versions.test"):
                part = os.path.join(where, name)
                subprocess.run(["split-file", path, part], check=True)
                found += [os.path.join(part, f) for f in sorted(os.listdir(part)) if f.endswith((".pipe", ".csv"))
                          and (name != "copies.test" or f == "some.pipe")]  # one has copies in its lists
    return found


def options(path):
    """What the first RUN line of a file gives pipec."""
    with open(path) as f:
        line = f.readline()
    found = re.search(r"%pipec (.*?)%s", line)
    words = found.group(1).split() if found else ["--check"]
    return [w for w in words if "%" not in w]


def questions(files):
    """What is asked: a name and the arguments of pipec, or None and what proofs_test damages."""
    out = []
    for f in files:
        given = options(f) if "all_m" not in f and "copies.test" not in f else ["--for-all=M"] + (["-Dw=1"] if "lag" in f else [])
        with open(f) as text:
            by_hand = "by-hand" in f and f.endswith(".csv")
        for more in [["--channels=rank"], ["--channels=tagged"]] if by_hand else [[]]:
            out.append((" ".join([os.path.basename(f)] + more), given + more + [f]))
    for how in ("swap", "peer", "lost", "last", "edge", "order", "event", "channel", "need", "spare", "again", "slot", "inside"):
        out.append((how, None))
    return out


def answer(pipec, proofs, question):
    name, arguments = question
    env = dict(os.environ, PIPE_STDLIB=os.environ["PLANTED_STDLIB"])
    command = [pipec] + arguments if arguments else [proofs, name]
    r = subprocess.run(command, capture_output=True, text=True, env=env, errors="replace")
    return name, r.returncode, r.stdout, r.stderr


# Mistakes that let through what the code behind the proof cannot be given: on which text pipec dies, and what it says:
# the assertion of code that does not share the mistake, or nothing.
DIES = {
    "DEPS_COMPLETE": ("bad-missing-w.pipe", "slots.c"),
    "COPIES": ("between.pipe", ""),
    "ALL_DATA": ("rounds.pipe", "verify_lists.c"),
    "ALL_RANK": ("m_place.pipe", "verify_lists.c"),
    "LIST_UNIT": ("beside.pipe", "verify_lists.c"),
    "LIST_CLOCK": ("beside.pipe", "verify_lists.c"),
    "LIST_SLOPE": ("beside.pipe", "verify_lists.c"),
    "LIST_COPY": ("some.pipe", "verify_lists.c"),
    "RULES_LEFT": ("turns.pipe", "verify_rules.c"),
    "RULES_EARLY": ("early_f.pipe", "verify_rules.c"),
    "RULES_SLOPE": ("slope.pipe", "verify_rules.c"),
    "RULES_HIDES": ("early_last.pipe", "verify_rules.c"),
    "RULES_SLICE": ("early_slice.pipe", "verify_rules.c"),
}


def verdict(answer):
    """Whether it was refused, by which errors, and what was proved; None: it died."""
    _, code, out, err = answer
    if code < 0:
        return None
    said = re.findall(r"^.*error: .*|^(?:proved|all M|refuted|\w+: transfers).*", err + out, re.M)
    return code, said


def main():
    root, pipec, libdir, cc, proofs, where = sys.argv[1:]
    os.makedirs(where)
    flags = ["-O0", "-DNDEBUG", "-D_POSIX_C_SOURCE=200809L"] + tree.include_flags(root)
    libs = subprocess.run(["pkg-config", "--libs", "jansson"], check=True, capture_output=True, text=True).stdout.split()

    def build(source, name, extra):
        target = os.path.join(where, name)
        subprocess.run(cc.split() + flags + extra + ["-c", source, "-o", target], check=True)
        return target

    def link(objects, name):
        target = os.path.join(where, name)
        subprocess.run(cc.split() + objects + [os.path.join(libdir, "libpipecore.a")] + libs + ["-lm", "-o", target],
                       check=True)
        return target

    main_o = build(tree.source(root, "main.c"), "main.o", [])
    proofs_o = build(os.path.join(root, "test", "check", "proofs_test.c"), "proofs.o", [])
    files = texts(root, where)
    asked = [(q, verdict(answer(pipec, proofs, q))) for q in questions(files)]
    assert None not in [right for _, right in asked], "pipec crashes without a mistake"
    with open(tree.source(root, "plant.h")) as f:
        plants = re.findall(r"^  PLANT_(\w+)", f.read(), re.M)
    missed = 0
    for plant in plants:
        sources = [n for n in tree.files(root, ".c") if f"PLANTED({plant})" in open(n).read()]
        objects = [build(n, plant + os.path.basename(n) + ".o", ["-DPIPE_PLANT=PLANT_" + plant]) for n in sources]
        planted = link(objects + [main_o], plant), link(objects + [proofs_o], plant + ".proofs")
        changed = []
        dies, said = DIES.get(plant, (None, None))
        for q, right in asked:  # up to the first that notices
            got = answer(*planted, q)
            if verdict(got) not in (None, right) or (q[0] == dies and got[1] < 0 and said in got[3]):
                changed = [q[0]]
                asked.remove((q, right))  # is asked first from now on: the same notices mistakes that are neighbours
                asked.insert(0, (q, right))
                break
        if plant == "OVER_LIMIT":  # the program that comes of it is verified by code that does not share this
            text = os.path.join(root, "test", "check", "bad-limit.pipe")
            r = subprocess.run([os.path.join(where, plant), "--check", "--verify", text], capture_output=True, text=True)
            if r.returncode >= 0 or "verify_stashes.c" not in r.stderr:
                changed = []
        if plant == "ORDER_CIRCLE":  # who is named in words is not what it is about
            text = os.path.join(root, "test", "check", "bad-deadlock-circle.pipe")
            r = subprocess.run([os.path.join(where, plant), "--check", "--verify", text], capture_output=True, text=True)
            changed = ["bad-deadlock-circle.pipe"] if r.returncode < 0 and "verify_circle.c" in r.stderr else []
        if not changed and plant.startswith("LISTS"):  # seldom enough to be asked only then
            random = [sys.executable, os.path.join(root, "test", "channels", "by_hand.py")]
            if subprocess.run(random + [os.path.join(where, plant), where, "1", "400"], capture_output=True).returncode:
                changed = ["by_hand.py"]
        missed += not changed or not sources
        print(f"{plant}: {'noticed by ' + changed[0] if changed else 'NOT NOTICED'}")
    print(f"{len(plants)} planted, {missed} not noticed")


main()

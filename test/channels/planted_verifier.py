# SPDX-License-Identifier: MIT
"""A verifier of certificates that has a mistake is found out: it accepts something that is wrong.

usage: planted_verifier.py ROOT DIRECTORY PROGRAMS SEED CC...

Each mistake takes a condition out of compiler/certify/verify_machine.c. machine_test, which forges certificates, is linked with it
and with the right prover; or with one that makes the same mistake. What is printed: the mistake, and whether it was found within so many programs; without one
nothing is.
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tools"))
import tree  # noqa: E402

MISTAKES = {
    "none": ("", ""),
    "a need that has ended is waited for": ("(why == WAIT_NEED    ? c->ended[on] == NONE", "(why == WAIT_NEED    ? true"),
    "what is posted is waited for": (": c->posted[on] == NONE));", ": true));"),
    "what meets is not there": (": why == WAIT_OTHER ? c->posted[on] != NONE", ": why == WAIT_OTHER ? true"),
    "the order skips some": ("r->nth == other->nth + 1", "r->nth > other->nth"),
    "a collective of two tensors is left out": ("return there && !same;", "return false;"),
    "no member of a collective is missing": ("? !is_whole(c, i)", "? true"),
    "a collective ends without a member": ("n != c->members[first] || least", "least"),
    "what meets is of one tensor": (" && r->in->tensor != other->in->tensor;", ";"),
    "there is room before that": ("!is_full_before(c, s, recv->nth + 1)", "true"),
    "its own RECV makes room": ("r->mate != on && is_room", "is_room"),
    "the queue of a channel is that of a peer": ("TRANSFERS, in->channel}", "TRANSFERS, in->peer}"),
    "a queue that is not that of the next hop": ("if (!is_ahead(c, next, on))", "if (false)"),
}

# Of the prover and the verifier alike:
PROVER = (" && !is(m, row->room, CROSSED)", "")
BOTH = "what is behind another tensor is sent"
MISTAKES[BOTH] = ("p->nrecv < crossed ? p->nrecv : crossed;", "p->nrecv;")


def main():
    root, where, programs, seed = sys.argv[1:5]
    flags = ["-O1", "-w", "-D_POSIX_C_SOURCE=200809L"] + tree.include_flags(root)
    compiler = sys.argv[5:] + flags

    def with_mistake(source, name, right, wrong):
        text = open(source).read()
        if right and text.count(right) != 1:
            sys.exit(f"{name}: not once in {source}: {right}")
        out = os.path.join(where, "mistaken_" + os.path.basename(source))
        with open(out, "w") as f:
            f.write(text.replace(right, wrong) if right else text)
        return compiled(out)

    def compiled(source):
        out = os.path.join(where, os.path.basename(source)[:-1] + "o")
        subprocess.run(compiler + ["-c", source, "-o", out], check=True)
        return out

    parts = ["test", "brute", "random", "shrink", "times"]
    objects = [compiled(f"{root}/test/channels/machine_{x}.c") for x in parts]
    objects += [compiled(f"{root}/lang/{name}.c") for name in ("arena", "guard")]
    program = os.path.join(where, "planted")
    right_prover = compiled(tree.source(root, "machine.c"))
    for name, (right, wrong) in MISTAKES.items():
        both = [with_mistake(tree.source(root, "verify_machine.c"), name, right, wrong),
                with_mistake(tree.source(root, "machine.c"), name, *PROVER) if name == BOTH else right_prover]
        subprocess.run(compiler + objects + both + ["-o", program], check=True)
        got = subprocess.run([program, programs, seed, "refused"], capture_output=True, text=True)
        found = got.returncode == 1 and "the verifier accepts what is wrong" in got.stdout
        print(f"{name}: {'found' if found else 'not found' if got.returncode == 0 else got.stderr}", flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MIT
"""A verifier of wait cycles that has a mistake is found out: cycle_test sees it accept what is wrong, or refuse what is right.

usage: planted_cycle.py ROOT LIBDIR CC DIRECTORY PROGRAMS SEED

Each mistake takes a condition out of compiler/certify/verify_cycle.c. What is printed: the mistake, and what cycle_test says.
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tools"))
import tree  # noqa: E402

MISTAKES = {
    "none": ("", ""),
    "what is needed has run": (" ||\n        h->on < action_of(s, next->rank, next->at))", ")"),
    "it is needed by nobody": (" || !needs(s, h->at, h->on)", ""),
    "an F of another microbatch": ("b->kind == PIPE_F && a->mb == b->mb &&", "b->kind == PIPE_F &&"),
    "a backward of another microbatch": ("b->kind == PIPE_I) && a->mb == b->mb &&", "b->kind == PIPE_I) &&"),
    "rows that no edge joins": ("a->next == to && b->prev == from", "true"),
    "an edge that is not there": ("return edge && ", "return "),
    "a gradient of another update": (" && updates_before(s, o->stage, i) == n;", ";"),
    "a stage that shares no weights": ("return summed(s, a->stage, b->stage) && ", "return "),
    "the hops do not meet": ("!on_rank(s, next->rank, h->on)", "false"),
    "an action does not start as one": ("while (i > s->orders->rank_op0[r] && s->orders->op[i - 1].group > 0)", "while (false)"),
}


def main():
    root, libdir, cc, where, programs, seed = sys.argv[1:]
    libs = subprocess.run(["pkg-config", "--libs", "jansson"], check=True, capture_output=True, text=True).stdout.split()
    flags = ["-O1", "-w", "-D_POSIX_C_SOURCE=200809L"] + tree.include_flags(root)
    source = tree.source(root, "verify_cycle.c")
    text = open(source).read()
    mistaken, program = os.path.join(where, "mistaken.c"), os.path.join(where, "planted")
    test = os.path.join(where, "test.o")
    subprocess.run(cc.split() + flags + ["-c", os.path.join(root, "test", "check", "cycle_test.c"), "-o", test], check=True)
    for name, (right, wrong) in MISTAKES.items():
        if right and text.count(right) != 1:
            sys.exit(f"{name}: not once in {source}: {right}")
        with open(mistaken, "w") as f:
            f.write(text.replace(right, wrong) if right else text)
        subprocess.run(cc.split() + flags + [mistaken, test, f"{libdir}/libpipec.a", f"{libdir}/libpiperun.a"] + libs + ["-lm", "-o", program], check=True)
        got = subprocess.run([program, programs, seed], capture_output=True, text=True)
        said = got.stdout.splitlines()[0].split(": ")[1] if got.returncode == 1 else f"exit {got.returncode}"
        print(f"{name}: {said}", flush=True)


main()

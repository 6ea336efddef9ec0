# SPDX-License-Identifier: MIT
"""Does pipec say of each text what its first line says? Texts are as machine_test writes them.

usage: machine_texts.py PIPEC DIRECTORY      each has the verdict; how many of each verdict there are, by model
       machine_texts.py PIPEC PLANTED TEXT   what the first line, pipec, and the pipec with a fault say, and that with
                                             certificates verified

The first line is `# who: verdict; model`, the second the command: `# pipec OPTIONS`.
"""
import collections
import os
import subprocess
import sys


SIGNS = {  # of what pipec says; where its prover finds nothing, the program is still carried out, under the same model
    "stalls, without a cycle": "cannot go on; model",
    "mispairs, and was not proved to": "st == PIPE_SIM_MISMATCH",
    "refused": "the certificate of check_channels",
    "deadlock": "[deadlock]",
    "matching": "[matching]",
}


def judge(pipec, path, env=None):
    """What the text's first line says of its verdict and its model, and what pipec says of it."""
    with open(path) as f:
        verdict, _, model = f.readline().partition(": ")[2].strip().partition("; ")
        options = f.readline().split()[2:]
    done = subprocess.run([pipec, *options, path], capture_output=True, text=True, env={**os.environ, **(env or {})})
    return verdict, model, "completes" if done.returncode == 0 else next((v for v in SIGNS if SIGNS[v] in done.stderr), done.stderr)


def main():
    pipec, where = sys.argv[1:3]
    if sys.argv[3:]:
        verdict, _, said = judge(pipec, sys.argv[3])
        planted = judge(where, sys.argv[3], {"PIPE_NO_VERIFY": "1"})[2]
        print(f"brute force: {verdict}, pipec: {said}, planted: {planted}, verified: {judge(where, sys.argv[3])[2]}")
        return 0
    count = collections.defaultdict(collections.Counter)
    for name in sorted(os.listdir(where)):
        verdict, model, said = judge(pipec, os.path.join(where, name))
        if said != verdict:
            with open(os.path.join(where, name)) as f:
                print(f.read(), f"{name}: the prover: {verdict}, pipec: {said}", sep="")
            return 1
        count[model][verdict] += 1
    for model, n in sorted(count.items()):
        print(f"{model}: " + ", ".join(f"{n[v]} {v}" for v in ("completes", "deadlock", "matching")))
    return 0


if __name__ == "__main__":
    sys.exit(main())

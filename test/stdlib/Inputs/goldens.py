# SPDX-License-Identifier: MIT
# What the whole library compiles to, as hashes: `goldens.py PIPEC STDLIB` prints one line for each file of the
# library and each of its six sizes,
#
#   FILE P M PROGRAM REPORT CSV
#
# with the first 12 digits of the SHA-256 of --emit=json, of --check, and of --emit=csv. A change that is meant to leave
# programs alone leaves these lines alone. The JSON has every list as the engines carry it out; the C has it as loops, and
# which loops are found is no matter of the schedule (check/rows.test holds the one against the other). Left out of the
# JSON are the hash of the program, which changes with the ABI, and the places of its instructions in the text, which change
# with the lines above them; "-" is an output that pipec refuses.
# A size is one that the schedule admits, the first six of SIZES.
import hashlib
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

SIZES = [(4, 8), (2, 4), (8, 16), (3, 6), (4, 12), (8, 32), (6, 12), (2, 2), (4, 16), (8, 8), (1, 4)]
FORM = re.compile(r'"hash":"[0-9a-f]*"|"at":\[[0-9,]*\]')


def output(pipec, option, path, size):
    """What pipec prints, None if it refuses."""
    folder, name = os.path.split(path)  # reports name the file as it was given
    run = subprocess.run([pipec, option, name, f"-DP={size[0]}", f"-DM={size[1]}"], cwd=folder, capture_output=True,
                         text=True)
    return run.stdout if run.returncode == 0 else None


def digest(text):
    if text is None:
        return "-"
    return hashlib.sha256(FORM.sub("", text).encode()).hexdigest()[:12]


def lines(pipec, path):
    found = []
    for size in SIZES:
        program = output(pipec, "--emit=json", path, size)
        if program is None:
            continue
        rest = [output(pipec, option, path, size) for option in ("--check", "--emit=csv")]
        found.append(" ".join([os.path.basename(path), *map(str, size), *map(digest, [program, *rest])]))
        if len(found) == 6:
            break
    return found


def main(pipec, stdlib):
    paths = sorted(os.path.join(stdlib, f) for f in os.listdir(stdlib) if f.endswith(".pipe"))
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda p: lines(pipec, p), paths):
            print("\n".join(found))


if __name__ == "__main__":
    main(*map(os.path.abspath, sys.argv[1:]))

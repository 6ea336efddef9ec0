# SPDX-License-Identifier: MIT
"""The figures of a release as CSV: bench,case,P,M,quantity,value,unit.

    PIPE_PEERS=CHECKOUTS python3 test/bench/results.py BUILD > test/bench/results-0.1.csv

peers: processor seconds of peers.py; left out without PIPE_PEERS. compile: user seconds and resident memory of about 10 M
instructions. engine: engine_bench. lowering: predicted makespan over that on an idle network, for a transfer of 25 where
F takes 100; the same on every machine. With a name after BUILD that bench alone; with --small at small sizes.
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LARGE = (("1f1b", 64, 26000), ("1f1b", 4096, 410), ("interleaved", 64, 13056), ("zb_h1", 64, 22300), ("dualpipe", 64, 26200))


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def peers(build, lib, small):
    text = said(sys.executable, os.path.join(HERE, "peers.py"), build + "/bin/pipec", lib, *(["4", "8"] if small else []))
    for m in re.finditer(r"^(\w+) +P=(\d+) +M=(\d+) +(\S+) ([0-9.]+) s .* too ([0-9.]+) s", text, re.M):
        for quantity, value in (("theirs, " + m[4], m[5]), ("pipec, all proofs and C", m[6])):
            yield *m.groups()[:3], quantity, value, "s"


def compiles(build, lib, small):
    for name, P, M in LARGE:
        P, M = (4, 8) if small else (P, M)
        text = said(build + "/bench/compile_bench", lib, "--one", name, str(P), str(M))
        m = re.search(r"(\d+) instr: .*?\(user ([0-9.]+)\).*; ([0-9.]+) GiB", text)
        for quantity, value, unit in zip(("instructions", "user time", "resident"), m.groups(), ("", "s", "GiB")):
            yield name, P, M, quantity, value, unit


def engine(build, _, small):
    text = said(build + "/bench/engine_bench", *(["--small"] if small else []))
    for m in re.finditer(r"^overhead: (\d+) ranks, boundary (\d+) bytes: (\d+) ns", text, re.M):
        yield f"overhead, boundary of {m[2]} bytes", m[1], "", "wall time per instruction", m[3], "ns"
    m = re.search(r"^agree: (\d+) ranks: ([0-9.]+) ms", text, re.M)
    yield "agree", m[1], "", "wall time", m[2], "ms"
    m = re.search(r"^predict: (\d+) ranks, M = (\d+),.*? ratio ([0-9.]+)", text, re.M)
    yield "predict", m[1], m[2], "measured over predicted", m[3], ""


def lowering(build, lib, small):
    P, M = (2, 4) if small else (8, 32)
    text = said(sys.executable, os.path.join(HERE, "lowerings.py"), build + "/bin/pipec", lib, str(P), str(M))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    for row in rows[1:]:
        for name, cell in zip(rows[0][1:], row[1:]):
            yield row[0], P, M, name, cell.split()[1] if " " in cell else cell, ""


BENCHES = {"peers": peers, "compile": compiles, "engine": engine, "lowering": lowering}


def main(build, *rest):
    small = "--small" in rest
    print("bench,case,P,M,quantity,value,unit")
    for name, bench in BENCHES.items():
        if name in rest or not set(rest) - {"--small"}:
            for row in bench(build, build + "/share/pipe/stdlib", small):
                print(name, *(f'"{cell}"' if "," in str(cell) else cell for cell in row), sep=",", flush=True)


if len(sys.argv) < 2 or set(sys.argv[2:]) - set(BENCHES) - {"--small"}:
    sys.exit(__doc__)
main(*sys.argv[1:])

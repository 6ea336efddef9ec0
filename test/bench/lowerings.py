# SPDX-License-Identifier: MIT
"""What the order of transfers costs: predicted makespan over that on an idle network, of the library.

    python3 test/bench/lowerings.py PIPEC STDLIB_DIR [P [M [NAME...]]]

F = I = W = 100, B = 200, a transfer 50, 100 and 200; one row per schedule, or of
those that are named; for each lowering the three ratios. `-`: the
schedule does not admit the size. Predictions, no measurement: equal on every machine."""
import json
import os
import re
import subprocess
import sys
import tempfile

SENDS = (50, 100, 200)
LOWERINGS = ("auto", "global", "channels")


def ratio(pipec, folder, name, schedule, params, send, lowering):
    """Of one compile, or why there is none."""
    text = 'import "%s"\nschedule timed(%s) extends %s() {\n  time { F = 100  I = 100  W = 100  B = 200  R = 100  send = %d }\n}\n' % (
        name, ", ".join("%s = %d" % p for p in params), schedule, send)
    with tempfile.TemporaryDirectory() as out:
        path = os.path.join(out, "timed.pipe")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        run = subprocess.run([pipec, path, "-I", folder, "--emit=json", "--lowering=" + lowering],
                             text=True, capture_output=True, check=False)
    if run.returncode == 0:
        got = json.loads(run.stdout)
        return "%.3f" % (got["makespan"] / got["ideal"])
    return "-"


def main():
    pipec, folder = sys.argv[1:3]
    size = [int(a) for a in sys.argv[3:5]] or [8, 32]
    print("| schedule | " + " | ".join(LOWERINGS) + " |")
    print("|" + "---|" * (1 + len(LOWERINGS)))
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".pipe") or (sys.argv[5:] and name[:-5] not in sys.argv[5:]):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            heads = re.findall(r"^schedule (\w+)\(([^)]*)\)", f.read(), re.M)
        if not heads:
            continue
        schedule, args = heads[-1]
        known = [a.split("=")[0].strip() for a in args.split(",")]
        params = [p for p in (("P", size[0]), ("M", size[-1])) if p[0] in known]
        cells = [" ".join(ratio(pipec, folder, name, schedule, params, c, l) for c in SENDS) for l in LOWERINGS]
        cells = [c.split()[0] if len(set(c.split())) == 1 and not c[0].isdigit() else c for c in cells]
        print("| %s | %s |" % (name[:-5], " | ".join(cells)), flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MIT
"""Is a faster network ever predicted to be slower? And is `auto` ever much worse than what it chooses from?

    slower.py PIPEC STDLIB_DIR SCRATCH POINTS [SCHEDULE...]

Each schedule (all of the library) with P = 8 M = 24, F = I = W = R = 100, B = 200 and transfers of POINTS lengths up to
200, in each lowering: prints the points, and each in which a slower network takes over 2 % less. Where the orders of the
ranks depend on the costs, as by `rules`, that may be so on idle networks, too: such pairs are passed over."""
import os
import re
import subprocess
import sys


def heads(folder, wanted):
    for name in sorted(os.listdir(folder)):
        if name.endswith(".pipe") and (not wanted or name[:-5] in wanted):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                found = re.findall(r"^schedule (\w+)\(([^)]*)\)", f.read(), re.M)
            if found:
                yield name, found[-1][0], [a.split("=")[0].strip() for a in found[-1][1].split(",")]


def makespans(pipec, folder, path, sends, lowering):
    """Send, makespan and that on an idle network, the slowest send first."""
    for send in reversed(sends):
        run = subprocess.run([pipec, path, "-I", folder, "--emit=json", "-D", "S=%d" % send, "--lowering=" + lowering],
                             text=True, capture_output=True, check=False)
        if run.returncode:
            return
        yield (send,) + tuple(int(re.search(r'"%s":(\d+)' % k, run.stdout).group(1)) for k in ("makespan", "ideal"))


def main():
    pipec, folder, path, points = sys.argv[1:5]
    sends = [200 * i // (int(points) - 1) for i in range(int(points))]
    total = wrong = 0
    for name, schedule, known in heads(folder, sys.argv[5:]):
        size = "".join("%s = %d, " % p for p in (("P", 8), ("M", 24)) if p[0] in known)
        with open(path, "w", encoding="utf-8") as f:
            f.write('import "%s"\nschedule timed(%sS = 0) extends %s() without checks {\n'
                    '  time { F = 100  I = 100  W = 100  B = 200  R = 100  send = S }\n}\n' % (name, size, schedule))
        best = {}
        for lowering in ("global", "channels", "auto"):
            slower = []
            for send, makespan, ideal in makespans(pipec, folder, path, sends, lowering):
                total += 1
                if lowering == "auto":
                    bad = [(send, b, 0) for b in best[send] if makespan > 1.05 * b]
                else:
                    bad = [b for b in slower if makespan > 1.02 * b[1] and ideal <= b[2]]
                    best.setdefault(send, []).append(makespan)
                    slower.append((send, makespan, ideal))
                if bad:
                    print("%s %s: %d at send %d, %d at %d" % (name, lowering, makespan, send, bad[0][1], bad[0][0]))
                    wrong += 1
    print("%d points, %d wrong" % (total, wrong))


if __name__ == "__main__":
    main()

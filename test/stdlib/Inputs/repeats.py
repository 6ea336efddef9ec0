# SPDX-License-Identifier: MIT
"""Does the order of transfers that a list schedule finds repeat, as loops need it?

    repeats.py PIPEC STDLIB_DIR SCRATCH SEND SCHEDULE...

P = 8 M = 96, one comm stream per rank: prints of each schedule the least part of a rank's transfers that lies in one stretch
that repeats, and the most microbatches of a period there."""
import json
import re
import subprocess
import sys

P, M = 8, 96


def stretch(seq, period):
    """The longest run of seq (label, microbatch) in which every entry comes again a period later."""
    n = len(seq) * period // M
    best = run = 0
    for (a, i), (b, j) in zip(seq, seq[n:]):
        run = run + 1 if (a, i + period) == (b, j) else 0
        best = max(best, run)
    return (best + n) / len(seq) if best else 0


def main():
    pipec, folder, path, send = sys.argv[1:5]
    for name in sys.argv[5:]:
        with open("%s/%s.pipe" % (folder, name), encoding="utf-8") as f:
            schedule = re.findall(r"^schedule (\w+)\(", f.read(), re.M)[-1]
        with open(path, "w", encoding="utf-8") as f:
            f.write('import "%s.pipe"\nschedule timed(P = %d, M = %d) extends %s() without checks {\n  transfers global\n'
                    '  time { F = 100  I = 100  W = 100  B = 200  R = 100  send = %s }\n}\n' % (name, P, M, schedule, send))
        out = subprocess.run([pipec, path, "-I", folder, "--emit=json"], text=True, capture_output=True, check=True).stdout
        rank = [[] for _ in range(P)]
        for t in json.loads(out)["transfers"]:
            label, mb = re.match(r"(\d+SEND_[FB])(\d+)$", t["send"]).groups()
            for r in t["from"], t["to"]:
                rank[r].append((label, int(mb)))
        found = [max((round(stretch(s, d), 2), -d) for d in range(1, 2 * P + 1) if len(s) * d % M == 0) for s in rank]
        print("%s %.2f %d" % (name, min(f[0] for f in found), max(-f[1] for f in found)))


if __name__ == "__main__":
    main()

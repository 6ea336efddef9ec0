# SPDX-License-Identifier: MIT
"""Adds transfers to an order, as code does that calls batch_isend_irecv between its ops: a RECV before the op that
reads the tensor, a SEND after the op that makes it, those with nothing computed between them in one group.

    grouped.py ORDER.csv                       writes the lists to standard output
    grouped.py PIPEC STDLIB DIRECTORY NAME...  the lists of schedules of the library, one chain of stages each, at
                                               several sizes: NAME_P_M.csv. Those that deadlock, or pair other
                                               tensors, are counted and removed

An order is a file of --emit=csv. The ops of an action exchange their tensors together."""
import os
import re
import subprocess
import sys

OP = re.compile(r"(\d+)([FBIW])(\d+)")


def grouped(order):
    """The text of the lists, from the text of the order."""
    rows = [[OP.findall(cell) for cell in line.split(",") if cell] for line in order.splitlines()]
    rank = {int(s): r for r, row in enumerate(rows) for ops in row for s, _, _ in ops}

    def moves(ops, word):
        for s, kind, mb in ops:
            down = (kind == "F") == (word == "SEND")
            other = rank.get(int(s) + (1 if down else -1))
            if kind != "W" and other not in (None, rank[int(s)]):
                yield f"{s}{word}_{'F' if kind == 'F' else 'B'}{mb}"

    text = ""
    for row in rows:
        cells, group = [], []
        for ops in row:
            group += moves(ops, "RECV")
            cells += ["+".join(group)] * bool(group) + ["".join(op) for op in ops]
            group = list(moves(ops, "SEND"))
        text += ",".join(cells + ["+".join(group)] * bool(group)) + "\n"
    return text


def main():
    if len(sys.argv) == 2:
        with open(sys.argv[1], encoding="utf-8") as f:
            print(grouped(f.read()), end="")
        return
    pipec, stdlib, directory, *names = sys.argv[1:]
    os.makedirs(directory, exist_ok=True)
    refused = 0
    for name in names:
        for P, M in ((2, 2), (2, 6), (4, 4), (4, 12)):
            order = subprocess.run([pipec, f"{stdlib}/{name}.pipe", f"-DP={P}", f"-DM={M}", "--emit=csv"],
                                   capture_output=True, text=True, check=False)
            if order.returncode:
                continue  # the schedule does not admit the size
            path = f"{directory}/{name}_{P}_{M}.csv"
            with open(path, "w", encoding="utf-8") as f:
                f.write(grouped(order.stdout))
            run = subprocess.run([pipec, "--check", path], capture_output=True, text=True, check=False)
            if run.returncode:
                assert re.search(r"\[(deadlock|matching)\]", run.stderr), path + run.stderr
                os.remove(path)
                refused += 1
    print(f"{len(os.listdir(directory))} lists, {refused} refused")


if __name__ == "__main__":
    main()

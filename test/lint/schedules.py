# SPDX-License-Identifier: MIT
# No source of the compiler, the runtime or the language knows a schedule by name: what a schedule is
# stands in stdlib/ and nowhere else. `schedules.py ROOT` prints one line per breach, as lint.py does.
#
# A name is that of a file of stdlib/ or of a schedule in it, or one of the names under which these are
# published. It counts as a word of its own, in code, strings and comments, small or capital, with '_',
# '-', a blank or nothing between its parts: zb_h1 is found in ZB-H1 and zbH1.
import os
import re
import sys

import lint

FOLDERS = ("compiler/", "runtime/", "lang/")
EXEMPT = "compiler/plan/"  # what it writes is a text that extends schedules of the library
PAGES = ("lang/spec.md", "lang/tour.md", "lang/errors.md")  # their examples have names; tests run them

PUBLISHED = ("1F1B", "GPipe", "DAPPLE", "PipeDream", "Chimera", "GEMS", "Hanayo", "DualPipe", "DualPipeV",
             "zero bubble", "ZB-1p", "ZB-2p", "ZB-H1", "ZB-H2", "ZB-V", "V-Min", "V-Half", "V-ZB", "BPipe",
             "Varuna", "looped BFS", "breadth first", "Seq1F1B", "TeraPipe", "PipeOffload", "PipeMare")

# Ordinary words that are also the name of a schedule: what they mean in the sources.
ALLOWED = {"breadth first": "how a shortest wait cycle is searched"}


def named(root):
    """Names of the library, of which at least one has to be there."""
    names = set()
    for path in lint.files(root):
        if path.startswith("stdlib/") and path.endswith(".pipe"):
            names.add(os.path.basename(path)[:-len(".pipe")])
            for text in lint.lines(root, path):
                m = re.match(r"schedule\s+(\w+)", text)
                if m:
                    names.add(m.group(1))
    return names


def breaches(root):
    names = named(root)
    if not names:
        yield "stdlib", 0, "no schedules found"
    words = sorted((names | set(PUBLISHED)) - set(ALLOWED), key=lambda n: (-len(n), n))
    parts = "|".join("[-_ ]?".join(map(re.escape, re.split("[-_ ]", w))) for w in words)
    word = re.compile(rf"(?<![A-Za-z0-9])(?:{parts})(?![A-Za-z0-9])", re.I)
    seen = 0
    for path in lint.files(root):
        if not path.startswith(FOLDERS) or path in PAGES or path.startswith(EXEMPT):
            continue
        seen += 1
        for n, text in enumerate(lint.lines(root, path), 1):
            for m in word.finditer(text):
                yield path, n, f"knows a schedule by name: {m.group(0)}"
    if not seen:
        yield ".", 0, "no source files found"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: schedules.py ROOT")
    found = list(breaches(sys.argv[1]))
    for path, n, what in found:
        print(f"{path}:{n}: {what}")
    sys.exit(1 if found else 0)

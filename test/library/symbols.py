# SPDX-License-Identifier: MIT
# `symbols.py LIBRARY HEADER...` prints what a library shows and the headers do not declare ("shown"), and what they declare
# and it does not show ("hidden"). Weak names, and those with a dot, are nobody's. `symbols.py --apart A.a B.a` prints the
# names that both archives define.
import re
import subprocess
import sys


def defined(path, *options):
    out = subprocess.run(["nm", *options, "--defined-only", "-g", path], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in out.splitlines()]
    return {row[2] for row in rows if len(row) == 3 and row[1] not in "WV" and "." not in row[2]}


def declared(path):
    """Functions and data between the visibility pragmas."""
    with open(path, encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S)
    names = set()
    for part in re.findall(r"visibility push\(default\)(.*?)#pragma GCC visibility pop", text, re.S):
        part = re.sub(r"^#(?:.*\\\n)*.*$", "", part, flags=re.M)
        part = re.sub(r"__attribute__\s*\(\(.*?\)\)\)?", "", part)
        while re.search(r"\{[^{}]*\}", part):
            part = re.sub(r"\{[^{}]*\}", "@", part)  # a body ends a declaration, of a type by its ';'
        for one in re.split(r";|\)\s*@", part):
            one = " ".join(one.replace("@", " ").split())
            if not one or one.startswith(("typedef", "static", "struct", "enum", "PIPE_STATIC_ASSERT")):
                continue
            m = re.match(r"extern [^(]*?(\w+)(?:\[\w+\])?$", one) or re.match(r"[^(]*?(\w+)\(", one)
            if m:
                names.add(m.group(1))
    return names


if sys.argv[1] == "--apart":
    for name in sorted(defined(sys.argv[2]) & defined(sys.argv[3])):
        print("in both", name)
else:
    shows = defined(sys.argv[1], *(["-D"] if sys.argv[1].endswith(".so") else []))
    says = set().union(*(declared(header) for header in sys.argv[2:]))
    for name in sorted(shows - says):
        print("shown", name)
    for name in sorted(says - shows):
        print("hidden", name)
    print(len(shows & says), "names")

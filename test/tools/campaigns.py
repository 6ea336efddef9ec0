# SPDX-License-Identifier: MIT
"""What the campaigns of ./dev soak tried, and what such campaigns have found so far.

usage: campaigns.py TEST_DIRECTORY RESULTS.json   of lit: a line for each test that ran
       campaigns.py TEST_DIRECTORY                exit status 1 if campaigns.txt names what is no campaign

How much a test tries in ./dev soak is the last number of its %much{a|b|c}.
"""
import json
import os
import re
import sys

FORM = re.compile(r"(\w*SHARE=)?%much\{[^|}]*\|[^|}]*\|([^|}]*)\}")


def tried(text):
    """In words: of a share, which cases; else how many."""
    many, shares = [], []
    for share, much in FORM.findall(text):
        number = re.search(r"\d+", much)
        if share:
            shares.append("all cases" if much == "1" else f"every {much}th case")
        elif number:
            many.append(number[0])
    return ", ".join(dict.fromkeys(["+".join(many)] * bool(many) + shares)) or "the seed of the run"


def text_of(folder, name):
    """Of a test; "" if there is none."""
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return ""
    with open(path, encoding="utf-8") as f:
        return f.read()


def main():
    folder = sys.argv[1]
    with open(os.path.join(folder, "tools", "campaigns.txt"), encoding="utf-8") as f:
        found = dict(line.rstrip().split(": ", 1) for line in f if not line.startswith("#"))
    if len(sys.argv) > 2:
        with open(sys.argv[2], encoding="utf-8") as f:
            ran = [t["name"].split(" :: ")[1] for t in json.load(f)["tests"] if t["code"] in ("PASS", "FAIL")]
        for name in sorted(ran):
            print(f"{name}: {tried(text_of(folder, name))}; found so far: {found.get(name, 'nothing on record')}")
        return 0
    wrong = [n for n in found if not ("%seed" in text_of(folder, n) or FORM.search(text_of(folder, n)))]
    for name in wrong:
        print(f"campaigns.txt: {name} is no campaign")
    return len(wrong) > 0


sys.exit(main())

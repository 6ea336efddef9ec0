# SPDX-License-Identifier: MIT
# keys.py SPEC < JSON: every key of the JSON is named in section 9 of the specification, and every name
# that its lists give for one is a key. Prints what is not.
import json
import re
import sys

spec = open(sys.argv[1], encoding="utf-8").read()
section = {int(m.group(1)): m.group(2) for m in
           re.finditer(r"^## (\d+)\. .*?\n(.*?)(?=^## |\Z)", spec, re.S | re.M)}
section[9] = re.split(r"^### ", section[9], flags=re.M)[0]  # the JSON form; what follows is about others
costs = set(re.search(r"`time s \{(.*?)\}`", section[6], re.S).group(1).split())
costs |= set(re.search(r"`bytes s \{(.*?)\}`", section[6], re.S).group(1).split())
costs -= {"=", "e"}
listed = {w.strip("[]") for t in re.findall(r"`([^`]*)`", section[9]) for w in t.split()}
listed -= {"--emit=json", "--emit=csv", "time"}  # options; "the keys of `time` and `bytes`"

keys = set()


def walk(value):
    if isinstance(value, dict):
        keys.update(value)
        value = list(value.values())
    if isinstance(value, list):
        for v in value:
            walk(v)


text = sys.stdin.read()
while text.strip():  # one or more objects
    value, end = json.JSONDecoder().raw_decode(text.lstrip())
    walk(value)
    text = text.lstrip()[end:]
words = set(re.findall(r"\w+", section[9]))
bad = [f"not documented: {k}" for k in sorted(keys - words - costs)]
bad += [f"documented, not there: {k}" for k in sorted((listed | costs) - keys)]
print("\n".join(bad) or f"{len(keys)} keys")
sys.exit(1 if bad or len(keys) < 30 else 0)

# SPDX-License-Identifier: MIT
# What the language has and nothing shows. `keywords.py ROOT` prints one line for each
#   - keyword of the lexer that no schedule of stdlib/ or examples/ uses, comments and strings aside;
#   - option of pipec that README.md, docs/ and lang/spec.md do not name; or do, and --help does not list it;
# and one line if the lexer has more than MOST keywords (docs/decisions/0014-fifty-words.md).
import re
import sys

import lint

MOST = 50


def words(texts):
    found = set()
    for text in texts:
        for line in text:
            line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
            found |= set(re.findall(r"[A-Za-z_]\w*", line.split("#")[0]))
    return found


def keywords(root):
    """{keyword: line of the lexer}"""
    found = {}
    for n, text in enumerate(lint.lines(root, "lang/lexer.re"), 1):
        m = re.match(r'  ("[a-z]+"(?: \| "[a-z]+")*) +\{', text)
        for word in re.findall(r"[a-z]+", m[1]) if m else ():
            found[word] = n
    return found


def options(root):
    """{option: line of the table, and whether it has a help}"""
    found = {}
    for n, text in enumerate(lint.lines(root, "compiler/driver/options.def"), 1):
        m = re.match(r"X\(\w+, (?:0|'(\w)'), (?:NULL|\"([a-z-]+)\"),", text)
        if m:
            found["--" + m[2] if m[2] else "-" + m[1]] = n, not re.search(r', ""\)', text)
    return found


def breaches(root):
    files = list(lint.files(root))
    schedules = [f for f in files if f.startswith(("stdlib/", "examples/")) and f.endswith(".pipe")]
    pages = [f for f in files if f in ("README.md", "lang/spec.md") or f.startswith("docs/") and f.endswith(".md")]
    known, used = keywords(root), words(lint.lines(root, f) for f in schedules)
    if len(known) < 5 or not schedules:
        yield "lang/lexer.re", 0, "no keywords, or no schedules, found"
    for word, n in known.items():
        if word not in used:
            yield "lang/lexer.re", n, f"no schedule of stdlib/ or examples/ uses '{word}'"
    if len(known) > MOST:
        yield "lang/lexer.re", 0, f"{len(known)} keywords, more than {MOST}"
    table = options(root)
    if len(table) < 5:
        yield "compiler/driver/options.def", 0, "no options found"
    named = "\n".join("\n".join(lint.lines(root, f)) for f in pages)
    for option, (n, listed) in table.items():
        if listed != bool(re.search(r"(?<![\w-])" + re.escape(option) + r"(?![a-z-])", named)):
            how = "do not name" if listed else "name, and --help does not,"
            yield "compiler/driver/options.def", n, f"README.md, docs/ and lang/spec.md {how} '{option}'"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: keywords.py ROOT")
    found = list(breaches(sys.argv[1]))
    for path, n, what in found:
        print(f"{path}:{n}: {what}")
    sys.exit(1 if found else 0)

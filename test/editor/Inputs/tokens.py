# SPDX-License-Identifier: MIT
"""tokens.py ROOT EDITOR FILE...: how an editor's grammar classifies every character of the files.

EDITOR: textmate, pygments, vim. The expectation is read from section 1 of the language and the words of
lang/lexer.re, by this program. Classes: c comment, s string, n number, k keyword,
i name, o operator or bracket, ! error. Prints each first difference of a line; with --words instead of
files, asks for every word of the lexer and some that are none."""
import json
import os
import re
import subprocess
import sys
import tempfile

root, editor, files = sys.argv[1], sys.argv[2], sys.argv[3:]
here = os.path.join(root, "lang", "editor")


def read(path):
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as f:
        return f.read()


rules = re.search(r"/\*!re2c(.*?)\n  name \{", read(os.path.join(root, "lang", "lexer.re")), re.S)[1]
WORDS = re.findall(r'"([a-z]+)"', rules)
TOKEN = re.compile(r'(?P<c>#.*)|(?P<s>"(?:[^"\\\n]|\\.)*"?)|(?P<n>[0-9]+(?:_[0-9]+)*(?:\.[0-9]+(?:_[0-9]+)*)?'
                   r'(?:[A-Za-z_][A-Za-z0-9_]*)?)|(?P<w>[A-Za-z_][A-Za-z0-9_]*)'
                   r"|(?P<o>->|\.\.|==|!=|<=|>=|&&|\|\||[.,;:()\[\]{}+*/%<>!?=@-])|(?P<e>\S)")


def reference(text):
    out = ["\n" if c == "\n" else " " for c in text]
    for m in TOKEN.finditer(text):
        kind = {"e": "!", "w": "k" if m[0] in WORDS else "i"}.get(m.lastgroup, m.lastgroup)
        out[m.start():m.end()] = kind * len(m[0])
    return "".join(out)


# ---- TextMate: the part of its semantics that a grammar without recursion needs ----
SCOPE = [("comment", "c"), ("string", "s"), ("constant.character.escape", "s"), ("constant.numeric", "n"),
         ("keyword.operator", "o"), ("punctuation", "o"), ("keyword", "k"), ("entity.name", "i"),
         ("support", "i"), ("variable", "i"), ("invalid", "!")]


def scope_class(name):
    return next(c for prefix, c in SCOPE if name.startswith(prefix))


def textmate(text):
    with open(os.path.join(here, "vscode", "syntaxes", "pipe.tmLanguage.json"), encoding="utf-8") as f:
        grammar = json.load(f)
    out = []
    for line in text.split("\n"):
        cls, at, inside = [" "] * len(line), 0, None
        while at <= len(line):
            found = []
            if inside:
                found.append((re.compile(inside["end"], re.A).search(line, at), -1, None))
            for k, rule in enumerate(inside["patterns"] if inside else grammar["patterns"]):
                found.append((re.compile(rule.get("match") or rule["begin"], re.A).search(line, at), k, rule))
            found = [f for f in found if f[0]]
            if not found:
                break
            m, _, rule = min(found, key=lambda f: (f[0].start(), f[1]))
            if inside:
                cls[at:m.start()] = scope_class(inside["name"]) * (m.start() - at)
            paint = scope_class((rule or inside).get("name", "variable"))
            cls[m.start():m.end()] = paint * len(m[0])
            for n, capture in ((rule or {}).get("captures") or {}).items():
                cls[m.start(int(n)):m.end(int(n))] = scope_class(capture["name"]) * len(m[int(n)])
                if int(n) > 1:
                    cls[m.end(int(n) - 1):m.start(int(n))] = " " * (m.start(int(n)) - m.end(int(n) - 1))
            if rule is None:
                inside = None
                if not m[0]:
                    break
            elif "begin" in rule:
                inside = rule
            at = m.end() if m[0] else at + 1
        out.append("".join(cls))
    return "\n".join(out)


def pygments(text):
    from pygments.lexers import load_lexer_from_file
    from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Punctuation, String

    lexer = load_lexer_from_file(os.path.join(here, "pygments", "pipe_lexer.py"), "PipeLexer",
                                 stripnl=False, ensurenl=False)
    kinds = [(Comment, "c"), (String, "s"), (Number, "n"), (Keyword, "k"), (Name, "i"), (Operator, "o"),
             (Punctuation, "o"), (Error, "!")]
    return "".join("\n" if ch == "\n" else next((c for k, c in kinds if token in k), " ")
                   for token, value in lexer.get_tokens(text) for ch in value)


def vim(text):
    script = r"""
set nocompatible encoding=utf-8
syntax on
setlocal filetype=pipe
function! Report()
  let out = []
  for l in range(1, line('$'))
    let cls = ''
    for c in range(1, strlen(getline(l)))
      let cls .= synIDattr(synID(l, c, 1), 'name') . ' '
    endfor
    call add(out, cls)
  endfor
  call writefile(out, $OUT)
endfunction
call Report()
qall!
"""
    names = {"Comment": "c", "String": "s", "Escape": "s", "Number": "n", "Clause": "k", "Flow": "k",
             "Reserved": "k", "Name": "i", "Function": "i", "Op": "i", "Operator": "o", "Error": "!"}
    with tempfile.TemporaryDirectory() as folder:
        for name, what in ("in.pipe", text), ("go.vim", script):
            with open(os.path.join(folder, name), "w", encoding="utf-8", errors="surrogateescape") as f:
                f.write(what)
        out = os.path.join(folder, "out")
        subprocess.run(["vim", "-es", "-u", "NONE", "-i", "NONE", "-n", "--cmd", "set rtp^=" + os.path.join(here, "vim"),
                        os.path.join(folder, "in.pipe"), "-S", os.path.join(folder, "go.vim")],
                       stdin=subprocess.DEVNULL, env={**os.environ, "OUT": out, "HOME": folder}, check=False)
        rows = read(out).split("\n")[:-1]
    lines = text.split("\n")
    if text.endswith("\n"):
        lines.pop()
    result = []
    for line, row in zip(lines, rows):
        per_byte = [names.get(n[4:], "?") if n.startswith("pipe") else " " for n in row.split(" ")]
        at, cls = 0, ""
        for ch in line:
            cls += per_byte[at] if at < len(per_byte) else "?"
            at += len(ch.encode("utf-8", "surrogateescape"))
        result.append(cls)
    return "\n".join(result) + ("\n" if text.endswith("\n") else "")


classify = {"textmate": textmate, "pygments": pygments, "vim": vim}[editor]
bad = characters = 0


def compare(name, text):
    global bad, characters
    want, got = reference(text), classify(text)
    for n, (line, w, g) in enumerate(zip(text.split("\n"), want.split("\n"), got.split("\n") + [""] * len(text)), 1):
        g = g.ljust(len(line))
        differ = [c for c in range(len(line)) if not line[c].isspace() and w[c] != g[c]]
        characters += sum(not c.isspace() for c in line)
        if differ or w.count("!"):
            bad += 1
            c = differ[0] if differ else w.index("!")
            print(f"{name}:{n}:{c + 1}: '{line[c:c + 12]}' is {g[c]}, not {w[c]}")


if files == ["--words"]:
    if len(WORDS) < 40:
        sys.exit(f"only {len(WORDS)} words in lexer.re")
    compare("words", "".join(f"x {w} = {w}x _{w} {w}(1)\n" for w in WORDS))
    compare("numbers", "0 1_000 1.5ms 40GiB 0..M 3_x 0x10 (1)..2\n")
    compare("strings", 'import "a#b.pipe" # "no\nimport "\\"q\\\\" x\n')
    compare("operators", "a->b..c==d!=e<=f>=g&&h||i<j>k+l-m*n/o%p?q:r!s=t@u;v,w.x[y](z){}\n")
else:
    for path in files:
        compare(os.path.basename(path), read(path))
print(f"{characters} characters")
sys.exit(1 if bad or characters < 100 else 0)

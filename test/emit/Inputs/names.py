# SPDX-License-Identifier: MIT
# names.py PIPEC N CC... : CSV files, whose program has the name of the file, get hostile names, N of them random.
# Whatever pipec writes of it stays what it is: C that compiles without a warning and holds the same bytes, XML and
# JSON that parse, and reports of shown characters.
import json
import random
import re
import subprocess
import sys
import unicodedata
import xml.etree.ElementTree

pipec, soups, cc = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
EVIL = "__attribute__((constructor))static void evil(void){extern void exit(int);exit(9);}"
PARTS = ['"', "\\", "\n", "\r", "\t", "*/", "/*", "//", "*", "/", "?", "??/", "??=", "%s%n", "\x1b]0;title\x07",
         "\x1b[31m", "\x7f", "\x01", "\u009b31m", "\u061c", "\u202e", "\u2028", "\ufeff", "é", "\u2713", "\U0001f600", "0", "a", " ",
         "<", "&", "]]>", "</script>", "<!--", "${x}", "'", ";", EVIL]  # fmt: skip
FIXED = ["plain", 'x*/' + EVIL + '/*', '";' + EVIL + '//', "ends in \\", "ends in ??", "??/", "*\\\n/ " + EVIL, "\\u000a", "a\\\n/"]


def run(*args, **more):
    done = subprocess.run([pipec, *args], capture_output=True, **more)
    assert done.returncode == 0, (args, done.stderr)
    return done


def all_shown(what, text):
    for c in text.decode():  # UTF-8, or an exception
        bad = c != "\n" and (unicodedata.category(c) in ("Cc", "Zl", "Zp") or unicodedata.bidirectional(c) in
                             ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI") or c == "\u061c")  # fmt: skip
        assert not bad, (what, c, text)


rand = random.Random(16)
soup = lambda: "".join(rand.choice(PARTS) for _ in range(rand.randrange(1, 60)))
# the longest name of a file has 255 bytes
names = [n.replace("/", "|").encode()[:240].decode(errors="ignore") + ".csv" for n in FIXED + [soup() for _ in range(soups)]]

files = []
for k, name in enumerate(names):
    path = "./" + name
    with open(path, "w") as f:
        f.write("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    run(path, f"--symbol=p{k}", "-o", f"n{k}.c")
    files.append(f"n{k}.c")
    assert json.loads(run(path, "--emit=json").stdout)["schedule"] == name
    if k < len(FIXED) + 10:
        assert json.loads(run(path, "--emit=trace").stdout)["otherData"]["schedule"] == name
        xml.etree.ElementTree.fromstring(run(path, "--emit=svg").stdout)
        page = run(path, "--emit=html").stdout
        data = re.search(rb'<script[^>]*json[^>]*>(.*?)</script>', page, re.S).group(1)
        json.loads(data)
        for what in ["--check"], ["--show"], ["--critical-path"], ["--dump-after=all"], ["--compare", "./" + names[0]]:
            out = run(*what, path)
            all_shown(what, out.stdout)
            all_shown(what, out.stderr)
        all_shown("csv", run("--compare", "--emit=csv", path, path).stdout)
        done = subprocess.run([pipec, "--check", "-D", name[:-4] + "=1", path], capture_output=True, check=False)
        all_shown("refused", done.stderr)  # in words that hold the name

# One program of all: each name comes out with its bytes, and nothing of a name has run.
with open("all.c", "w") as f:
    f.write("#include <pipe_instr.h>\n#include <stdio.h>\n")
    f.writelines(f"extern const PipeProgram p{k};\n" for k in range(len(names)))
    f.write("int main(void) {\n")
    f.writelines(f"  printf(\"%s%c\", p{k}.name, 0);\n" for k in range(len(names)))
    f.write("  return 0;\n}\n")
subprocess.run([*cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", "all", "all.c", *files], check=True)
said = subprocess.run(["./all"], capture_output=True, check=True).stdout.decode().split("\0")
assert said == [*names, ""]

# Paths: of the input, in C, reports and messages; bytes that are not UTF-8, too.
with open("base.pipe", "rb") as f:
    text = f.read()
for k, path in enumerate([b"a\x1b[31m.pipe", b"b*\n.pipe", b"c\"??).pipe", b"d\xff\xc2.pipe", b"e\\.pipe", "f\u009b\u202e.pipe".encode()]):
    with open(path, "wb") as f:
        f.write(text)
    run(path, "-o", f"path{k}.c")
    subprocess.run([*cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-c", f"path{k}.c"], check=True)
    all_shown(path, run("--critical-path", path).stdout)
    for what in "json", "trace":
        json.loads(run(f"--emit={what}", path).stdout)
    with open(path, "wb") as f:
        f.write(b"schedule \x1b]0;x\x07 \xc2\x9b \xff\n")
    done = subprocess.run([pipec, "--check", path], capture_output=True, check=False)
    assert done.returncode == 1
    all_shown(path, done.stderr)

# A limit is quoted as the file has it.
with open("limit.pipe", "wb") as f:
    f.write(text.replace(b"order r", b"limit inflight(0) + # \x1b[31m\n 0 <= M\n  order r"))
all_shown("limit", run("--check", "limit.pipe").stdout)
print(len(names), "names")

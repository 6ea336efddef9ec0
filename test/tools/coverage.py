# SPDX-License-Identifier: MIT
# coverage.py BUILD OUT: which lines the runs of a build with PIPE_COVERAGE went through. Prints a line
# per folder: lines of code, lines that ran, and their share. OUT gets index.html, with each file, and a
# page per file, with how often each line ran. A process that is killed leaves no counts: lines that only
# such processes run count as not run.
import collections
import html
import json
import os
import pathlib
import subprocess
import sys

SOURCES = {"compiler", "lang", "runtime"}
STYLE = ("<meta charset=utf-8><style>body{font:14px monospace} pre{margin:0} .no{background:#fdd}"
         " td{padding:0 1em;text-align:right} td:first-child{text-align:left}"
         " @media(prefers-color-scheme:dark){body{background:#111;color:#ddd} .no{background:#522}}"
         "</style>")

build, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
root = pathlib.Path(__file__).resolve().parents[2]


def counted():
    """Of each source file, how often each line of code ran, in all programs it is linked to."""
    files = collections.defaultdict(collections.Counter)
    notes = sorted(str(p) for p in build.rglob("*.gcno"))
    for at in range(0, len(notes), 40):
        text = subprocess.run(["gcov", "--json-format", "--stdout", *notes[at:at + 40]],
                              cwd=build, check=True, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        for line in text.splitlines():
            for f in json.loads(line)["files"]:
                path = os.path.relpath(build / f["file"], root)
                if path.split("/")[0] in SOURCES and (root / path).exists():  # it may have moved since
                    for row in f["lines"]:
                        files[path][row["line_number"]] += row["count"]
    return files


def row(name, of):
    ran = sum(n > 0 for n in of)
    return name, len(of), ran, f"{100 * ran / max(len(of), 1):.1f} %"


def page(path, lines):
    text = [f"<title>{path}</title>{STYLE}<h1>{path}</h1><pre>"]
    for n, code in enumerate((root / path).read_text(encoding="utf-8").splitlines(), 1):
        mark = " class=no" if lines.get(n) == 0 else ""
        text.append(f"<span id=L{n}{mark}>{n:5} {lines.get(n, ''):>12}  {html.escape(code)}</span>")
    return "\n".join(text)


files = counted()
if not files:
    sys.exit(f"coverage.py: nothing in {build} counts lines: it takes PIPE_COVERAGE")
folders = collections.defaultdict(list)
for path, lines in files.items():
    folders[os.path.dirname(path)] += lines.values()
rows = [row(f, folders[f]) for f in sorted(folders)] + [row("all", sum(folders.values(), []))]
print(f"{'folder':<24} {'lines':>8} {'ran':>8} {'share':>8}")
for r in rows:
    print(f"{r[0]:<24} {r[1]:>8} {r[2]:>8} {r[3]:>8}")
out.mkdir(parents=True, exist_ok=True)
index = [f"<title>coverage</title>{STYLE}<table><tr><th>file<th>lines<th>ran<th>share"]
for path in sorted(files):
    name = path.replace("/", "-") + ".html"
    (out / name).write_text(page(path, files[path]), encoding="utf-8")
    cells = row(f"<a href={name}>{path}</a>", files[path].values())
    index.append("<tr>" + "".join(f"<td>{c}" for c in cells))
(out / "index.html").write_text("\n".join(index) + "</table>\n", encoding="utf-8")

# SPDX-License-Identifier: MIT
# Runs the examples of the documentation, so that they stay true.
#
#   examples.py errors PIPEC ROOT [--write]   lang/errors.md
#   examples.py good PIPEC FILE.md [--write]  any other page
#
# `good`: every fenced ```pipe block compiles with --check, or with a line <!-- refuted --> before it does not, and
# a ```console block right after one shows what the calls of pipec in it print. `errors`: the page has one section for each
# row of lang/diag.def, in its order. A section shows an example in a ```pipe block and, in the ```text
# block after it, all that pipec says to it; that has to be what it says, with errors of the section's
# name only and exit status 1; or, if it says "A warning:", warnings of that name and status 0. --write replaces the ```text blocks by what pipec says. A section without
# an example says why: no text can cause that error.
#
# An example is the file main.pipe, or main.csv or main.json where there is one; a block with a file name after its language (```json cost.json) is
# a file beside it. A line <!-- pipec: OPTIONS --> before a block gives options.
import os
import re
import shlex
import subprocess
import sys
import tempfile

NO_EXAMPLE = "No text causes it:"
BLOCK = re.compile(r"(?:<!-- pipec: (?P<options>.*?) -->\n\n?|(?P<refuted><!-- refuted -->)\n\n?)?^```(?P<language>\w+)(?: (?P<name>\S+))?\n"
                   r"(?P<text>.*?)^```$", re.S | re.M)


def run(pipec, files, options, main="main.pipe"):
    """What pipec prints for `main` among files, and its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(text)
        done = subprocess.run([pipec, main] + shlex.split(options), cwd=folder, text=True,
                              capture_output=True, check=False, encoding="utf-8",
                              env=dict(os.environ, LC_ALL="C.UTF-8"))
        return done.stdout + done.stderr, done.returncode


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def good(pipec, path, write):
    """Whether each program does what the page says; --write makes the page show what pipec prints."""
    bad = blocks = 0
    program = None

    def block(m):
        nonlocal bad, blocks, program
        if m["language"] == "console" and program:
            shown = ""
            for line, text in re.findall(r"^(\$ .*\n)((?:(?!\$ ).*\n)*)", m["text"], re.M):
                call = re.match(r"\$ \S*\bpipec (.*?)(\w+\.pipe)\n", line)
                out = run(pipec, {call[2]: program}, call[1], call[2])[0] if call else text
                shown += line + out
                if out != text and not write:
                    bad += 1
                    print(f"{path}: '{line.strip()}' prints\n{out}")
            program = None
            return m[0].replace(m["text"], shown) if shown else m[0]
        program = m["text"] if m["language"] == "pipe" else None
        if not program:
            return m[0]
        blocks += 1
        out, status = run(pipec, {"main.pipe": m["text"]}, (m["options"] or "") + " --check")
        if status != (1 if m["refuted"] else 0):
            bad += 1
            print(f"{path}: example {blocks} {'is accepted' if m['refuted'] else 'fails'}:\n{out}")
        return m[0]

    page = BLOCK.sub(block, read(path))
    if write:
        with open(path, "w", encoding="utf-8") as f:
            f.write(page)
    print(f"{blocks} examples")
    return bad == 0 and blocks > 0


def section(pipec, name, text):
    """The section with its ```text blocks made true, and what was wrong with it."""
    files, options, shown, wrong = {}, "", 0, []

    def block(m):
        nonlocal files, options, shown
        if m["language"] != "text":
            files[m["name"] or "main.pipe"] = m["text"]
            options = m["options"] or options
            return m[0]
        shown += 1
        out, status = run(pipec, files, options, next((f for f in ("main.csv", "main.json") if f in files), "main.pipe"))
        warns = "A warning:" in text
        names = set(re.findall(r"^(?:\S+: )?%s: .* \[([a-z-]+)\]$" % ("warning" if warns else "error"), out, re.M))
        if names != {name}:
            wrong.append(f"{name}: the example is an error of {sorted(names) or 'no kind'}")
        if status != (0 if warns else 1):
            wrong.append(f"{name}: the example ends with status {status}")
        if m["text"] != out:
            wrong.append(f"{name}: pipec says\n{out}and not\n{m['text']}")
        files, options = {}, ""
        return f"```text\n{out}```"

    new = BLOCK.sub(block, text)
    if files:
        wrong.append(f"{name}: an example without a ```text block after it")
    if (NO_EXAMPLE in text) == (shown > 0):
        wrong.append(f"{name}: needs an example, or a sentence '{NO_EXAMPLE} ...'")
    if "Fix: " not in text:
        wrong.append(f"{name}: does not say what to change")
    return new, wrong


def errors(pipec, root, write):
    path = os.path.join(root, "lang", "errors.md")
    rows = re.findall(r'^X\(\w+, "([^"]+)"\)', read(os.path.join(root, "lang", "diag.def")), re.M)
    head, *rest = re.split(r"^(?=## )", read(path), flags=re.M)
    found = [re.match(r"## (\S+)\n", s) for s in rest]
    names = [m[1] if m else "" for m in found]
    wrong = [] if names == rows else [f"the sections are {names}, the rows of diag.def {rows}"]
    page = head
    for name, text in zip(names, rest):
        new, slips = section(pipec, name, text)
        page += new
        wrong += slips
    if write:
        with open(path, "w", encoding="utf-8") as f:
            f.write(page)
    print("\n".join(wrong) or f"{len(rows)} diagnostics, {page.count('```text')} examples")
    return not wrong and len(rows) > 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["good"] and len(sys.argv) in (4, 5) and sys.argv[4:] in ([], ["--write"]):
        sys.exit(not good(os.path.abspath(sys.argv[2]), sys.argv[3], len(sys.argv) == 5))
    if sys.argv[1:2] == ["errors"] and len(sys.argv) in (4, 5) and sys.argv[4:] in ([], ["--write"]):
        sys.exit(not errors(os.path.abspath(sys.argv[2]), sys.argv[3], len(sys.argv) == 5))
    sys.exit("usage: examples.py errors PIPEC ROOT [--write] | good PIPEC FILE.md [--write]")

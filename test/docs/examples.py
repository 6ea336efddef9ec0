# SPDX-License-Identifier: MIT
# Runs the examples of the documentation, so that they stay true.
#
#   examples.py errors PIPEC ROOT [--write]   lang/errors.md
#   examples.py good PIPEC FILE.md [--write] [--with WORD=VALUE]...  any other page
#
# good. Every fenced ```pipe block compiles with --check, or, with a line <!-- refuted --> before it,
# does not. A ```console block holds commands after `$ ` and what each prints. The commands of a page
# run one after the other in one folder. A block with a file name after its language (```c model.c)
# is a file there; so is a ```pipe block under the name that the console block right after it
# mentions first. A line <!-- files of OTHER.md --> puts the files of another page there first. `...` in what a command prints
# stands for anything in its line or, alone on a line, for any lines.
#
# A ```sh block is a script, which has to succeed; its lines that begin with `export` hold for all later commands. The ```py
# blocks of a page are one program, which runs at the end of the page. A block of another language has a file name: a ```cmake
# block without one is an error. A line <!-- needs WORD --> before a block says that it runs only --with WORD: torch (VALUE is a
# Python that has it), safetensors, checkout (VALUE is a copy of the tree, in which the block runs). A line <!-- not run: REASON -->
# says why a block never runs. What did not run is printed, with the reason.
#
# errors. The page has one section for each row of lang/diag.def, in its order. A section shows an
# example in a ```pipe block and, in the ```text block after it, everything that pipec says about it:
# errors of the section's name only, with exit status 1; or, where the section says "A warning:",
# warnings of that name, with status 0. A section without an example says why no text can cause the
# error. The example is the file main.pipe, or main.csv or main.json where there is one; a block with a
# file name is a file beside it.
#
# A line <!-- pipec: OPTIONS --> before a block gives options. --write makes the page show what
# pipec and the commands print.
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

NO_EXAMPLE = "No text causes it:"
BLOCK = re.compile(r"(?:<!-- (?:pipec: (?P<options>[^\n]*?)|(?P<refuted>refuted)|needs (?P<needs>[^\n]*?)|not run: (?P<why>[^\n]*?)) -->\n\n?)?"
                   r"^```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.S | re.M)
RUN = ("console", "sh", "py", "cmake")  # languages of blocks that do something


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def write_file(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write(text)


def run(pipec, folder, options, main="main.pipe"):
    """What pipec prints for `main` in the folder, and its exit status."""
    done = subprocess.run([pipec, main] + shlex.split(options), cwd=folder, text=True,
                          capture_output=True, check=False, encoding="utf-8",
                          env=dict(os.environ, LC_ALL="C.UTF-8"))
    return done.stdout + done.stderr, done.returncode


def is_shown(shown, out):
    """Whether `shown`, in which ... stands for anything, is what a command has printed."""
    lines = (re.escape(line).replace(r"\.\.\.", r"[^\n]*") + "\n" for line in shown.splitlines())
    return re.fullmatch("".join(r"(?:.*\n)*" if line == r"[^\n]*" + "\n" else line for line in lines), out) is not None


def good(pipec, path, write, has):
    """Whether each program does what the page says, and each command; --write makes the page show what they print."""
    bad = blocks = commands = skipped = 0
    before = ""  # the ```pipe block right before, if it has no name
    exports = program_of_page = ""
    folders = [os.path.dirname(pipec), *([os.path.dirname(has["torch"])] if "torch" in has else [])]
    environment = dict(os.environ, LC_ALL="C.UTF-8", PATH=os.pathsep.join([*folders, os.environ["PATH"]]))

    def shell(folder, text):
        return subprocess.run(["bash", "-c", exports + text], cwd=folder, text=True, check=False, encoding="utf-8",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)

    def skip(m):
        nonlocal skipped
        lacks = [word for word in (m["needs"] or "").split(", ") if word and word not in has]
        why = m["why"] or (lacks and "needs " + ", ".join(lacks))
        if why:
            skipped += 1
            line = m.string.count("\n", 0, m.start("language")) + 1
            print(f"{os.path.basename(path)}:{line}: {m['language']} not run: {why}")
        return bool(why)

    def script(folder, m):
        nonlocal bad, commands, exports
        commands += 1
        done = shell(os.path.join(folder, "checkout") if m["needs"] == "checkout" else folder, "set -e\n" + m["text"])
        exports += "".join(re.findall(r"^export .*\n", m["text"], re.M))
        if done.returncode:
            bad += 1
            print(f"{path}: sh ends with status {done.returncode}:\n{m['text']}{done.stdout}")

    def console(folder, text):
        nonlocal bad, commands
        page = ""
        for line, shown in re.findall(r"^(\$ .*\n)((?:(?!\$ ).*\n)*)", text, re.M):
            commands += 1
            out = shell(folder, line[2:]).stdout
            if not is_shown(shown, out):
                if write:
                    shown = out
                else:
                    bad += 1
                    print(f"{path}: '{line.strip()}' prints\n{out}")
            page += line + shown
        return page

    def block(m, folder):
        nonlocal bad, blocks, before, program_of_page
        program, before = before, ""
        if m["language"] in RUN and not m["name"] and skip(m):
            return m[0]
        if m["language"] == "console":
            name = re.search(r"\w+\.pipe", m["text"])
            if program and name:
                write_file(folder, name[0], program)
            return m[0].replace(m["text"], console(folder, m["text"]))
        if m["language"] == "sh":
            script(folder, m)
        elif m["language"] == "py" and not m["name"]:
            program_of_page += m["text"]
        elif m["language"] == "cmake" and not m["name"]:
            bad += 1
            print(f"{path}: a ```cmake block without the name of a file")
        if m["language"] != "pipe" and not m["name"]:
            return m[0]
        write_file(folder, m["name"] or "main.pipe", m["text"])
        if m["language"] != "pipe":
            return m[0]
        before = "" if m["name"] else m["text"]
        blocks += 1
        out, status = run(pipec, folder, (m["options"] or "") + " --check", m["name"] or "main.pipe")
        if status != (1 if m["refuted"] else 0):
            bad += 1
            print(f"{path}: example {blocks} {'is accepted' if m['refuted'] else 'fails'}:\n{out}")
        return m[0]

    with tempfile.TemporaryDirectory() as folder:
        for name in glob.glob("*.csv", root_dir=os.path.dirname(path) or "."):  # lists that the page speaks of
            shutil.copy(os.path.join(os.path.dirname(path), name), folder)
        if "checkout" in has:
            shutil.copytree(has["checkout"], os.path.join(folder, "checkout"))
        for other in re.findall(r"^<!-- files of (\S+) -->$", read(path), re.M):
            for m in BLOCK.finditer(read(os.path.join(os.path.dirname(path), other))):
                if m["name"]:
                    write_file(folder, m["name"], m["text"])
        page = BLOCK.sub(lambda m: block(m, folder), read(path))
        if program_of_page:
            commands += 1
            write_file(folder, "page.py", program_of_page)
            done = shell(folder, shlex.quote(has.get("torch", sys.executable)) + " page.py")
            if done.returncode:
                bad += 1
                print(f"{path}: the py blocks end with status {done.returncode}:\n{done.stdout}")
    if write:
        write_file(os.path.dirname(path) or ".", os.path.basename(path), page)
    print(f"{blocks} examples, {commands} commands" + (f", {skipped} not run" if skipped else ""))
    return bad == 0 and blocks + commands + skipped > 0


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
        with tempfile.TemporaryDirectory() as folder:
            for f, content in files.items():
                write_file(folder, f, content)
            out, status = run(pipec, folder, options, "main.csv" if "main.csv" in files else "main.pipe")
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
        write_file(os.path.dirname(path) or ".", os.path.basename(path), page)
    print("\n".join(wrong) or f"{len(rows)} diagnostics, {page.count('```text')} examples")
    return not wrong and len(rows) > 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["good"] and len(sys.argv) >= 4:
        rest = sys.argv[4:]
        writes = rest[:1] == ["--write"]
        rest = rest[writes:]
        if rest[::2] == ["--with"] * (len(rest) // 2):
            sys.exit(not good(os.path.abspath(sys.argv[2]), sys.argv[3], writes, dict(word.partition("=")[::2] for word in rest[1::2])))
    if sys.argv[1:2] == ["errors"] and len(sys.argv) in (4, 5) and sys.argv[4:] in ([], ["--write"]):
        sys.exit(not errors(os.path.abspath(sys.argv[2]), sys.argv[3], len(sys.argv) == 5))
    sys.exit("usage: examples.py errors PIPEC ROOT [--write] | good PIPEC FILE.md [--write] [--with WORD=VALUE]...")

# SPDX-License-Identifier: MIT
# What pipec says to small programs: all of it.
#
#   said.py PIPEC FILE.test... [--refused] [--write]   compares; --write replaces what is expected
#   said.py --table FILE.test...                       the table of test/mistakes/README.md
#
# A file is a row of sections `#--- NAME`. NAME.pipe or NAME.csv is a case; other names, and those in
# a folder, are files beside the cases. A case begins with comments:
#
#   # What the author did: one line, one mistake.
#   # fix: OLD => NEW          text below that has to be replaced; also several, also in the options
#   # pipec: OPTIONS           besides --check; also several, each of them a run
#
# and ends with what is expected, after `#> `. There `4:12-15: error: ...` stands for the message at
# line 4, its file before it, that line below it, and columns 12 to 15 marked; `a.json 1:3: error: ...`
# for one at a place of another section. Everything else that pipec prints stands there as it is, with
# STDLIB for the folder of the standard library. pipec reads neither these lines nor the comments of a
# CSV file. The exit status has to be 1, or 0 where no error is expected: a mistake that is a legal
# program. With its fixes made, the case has to be accepted: it has no other mistake. Cases of
# --refused have no fixes; they may have several mistakes, and no words on them.
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile

SECTION = re.compile(r"^#--- (\S+)\n", re.M)
WANT = re.compile(r"^#> (.*\n)", re.M)


def program(name, text):
    """The text of a case as pipec reads it."""
    return re.sub("^#.*\n", "", text, flags=re.M) if name.endswith(".csv") else WANT.sub("", text)


class Case:
    def __init__(self, name, text):
        self.name, self.text = name, WANT.sub("", text)
        self.want = "".join(WANT.findall(text))
        head = re.match(r"# (?P<what>.*)\n(?P<fixes>(?:# fix: .*\n)*)", self.text)
        self.what = head["what"] if head else None
        self.fixes = [(a.replace("\\n", "\n"), b.replace("\\n", "\n"))
                      for a, b in re.findall(r"# fix: (.*?) => ?(.*)\n", head["fixes"])] if head else []
        self.below = head.end() if head else 0

    def fixed(self):
        """The text with its fixes made, or None where one does not fit."""
        text = self.text[self.below:]
        for old, new in self.fixes:
            if old not in text:
                return None
            text = text.replace(old, new, 1)
        return text


def read(path):
    """What stands above the sections, and the sections, in order."""
    with open(path, encoding="utf-8") as f:
        parts = SECTION.split(f.read())
    return parts[0], dict(zip(parts[1::2], parts[2::2]))


def cases(sections):
    return [Case(name, text) for name, text in sections.items()
            if name.endswith((".pipe", ".csv")) and "/" not in name]


def put(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def folded(said, name, files):
    """Messages at places of the files, without the lines that follow from their places."""
    def short(m):
        lines, line, col = files.get(m["file"], "").split("\n"), int(m["line"]), int(m["col"])
        if line > len(lines) or m["below"] != f"{line:5} | {lines[line - 1]}\n      | {' ' * (col - 1)}":
            return m[0]
        end = f"-{col + len(m['mark']) - 1}" if len(m["mark"]) > 1 else ""
        return f"{'' if m['file'] == name else m['file'] + ' '}{line}:{col}{end}: {m['what']}\n"
    return re.sub(r"^(?P<file>[^\s:]+):(?P<line>\d+):(?P<col>\d+): (?P<what>.*)\n"
                  r"(?P<below> *\d+ \| .*\n +\| *)(?P<mark>\^~*)\n", short, said, flags=re.M)


def run(pipec, folder, sections, name, text):
    """What pipec says to the text, and what is wrong with its exit status."""
    given = re.findall(r"^# pipec:(.*)$", text, re.M) or [""]
    text = program(name, text)
    put(folder, name, text)
    all_said, wrong = "", []
    for options in given:
        done = subprocess.run([pipec, "--check", name] + shlex.split(options), cwd=folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        said = re.sub(r"\S*/share/pipe/stdlib/", "STDLIB/", done.stdout)
        if done.returncode != (1 if re.search(r"^(.*: )?error: ", said, re.M) else 0):
            wrong.append(f"exit status {done.returncode}")
        all_said += said
    return folded(all_said, name, {**sections, name: text}), wrong


def table(paths):
    rows, count = [], 0
    for path in paths:
        of_file = cases(read(path)[1])
        if not of_file:
            continue
        rows.append(f"\n## {os.path.basename(path)[:-len('.test')]}\n")
        rows.append("| case | mistake | pipec says |\n|---|---|---|")
        for c in of_file:
            said = re.search(r"\[([a-z-]+)\]$", c.want, re.M)
            rows.append(f"| {c.name} | {c.what} | {said[1] if said else 'nothing: it is legal'} |")
            count += 1
    print(f"{count} mistakes.")
    print("\n".join(rows).replace("||", "\\|\\|"))


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    if "--table" in sys.argv:
        table(args)
        return 0
    pipec, paths = os.path.abspath(args[0]), args[1:]
    refused = "--refused" in sys.argv
    bad = count = 0
    for path in paths:
        above, sections = read(path)
        with tempfile.TemporaryDirectory() as folder:
            for name, text in sections.items():
                put(folder, name, text)
            for c in cases(sections):
                count += 1
                said, problem = run(pipec, folder, sections, c.name, c.text)
                if said != c.want and "--write" not in sys.argv:
                    problem.append("it is not what is expected\n" + "".join(difflib.unified_diff(
                        c.want.splitlines(True), said.splitlines(True), "expected", "said")))
                if bool(c.fixes) == refused or not (refused or c.what):
                    problem.append("it does not begin with the mistake and its fix")
                elif c.fixed() is None:
                    problem.append("a fix does not fit")
                elif c.fixes:
                    after, wrong = run(pipec, folder, sections, c.name, c.fixed())
                    if wrong or re.search(r"^(.*: )?error: ", after, re.M):
                        problem.append("with its fixes made, pipec says\n" + after)
                sections[c.name] = c.text + re.sub("^(?=.|\n)", "#> ", said, flags=re.M)
                bad += bool(problem)
                for p in problem:
                    print(f"{os.path.basename(path)}: {c.name}: {p}")
        if "--write" in sys.argv:
            with open(path, "w", encoding="utf-8") as f:
                f.write(above + "".join(f"#--- {name}\n{text}" for name, text in sections.items()))
    print(f"{count - bad} of {count} as expected")
    return 1 if bad or not count else 0


if __name__ == "__main__":
    sys.exit(main())

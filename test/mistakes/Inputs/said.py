# SPDX-License-Identifier: MIT
# Mistakes of schedule authors, and all that pipec says to each.
#
#   said.py PIPEC FILE.test... [--write]   compares; --write replaces what is expected by what is said
#   said.py --table FILE.test...           the table of README.md
#
# A file is a row of sections `#--- NAME`. NAME.pipe or NAME.csv is a case, NAME.want what pipec says
# to it; other names are files beside the cases. A case begins with comments:
#
#   # What the author did: one line, one mistake.
#   # fix: OLD => NEW          text below that has to be replaced; also several, also in the options
#   # pipec: OPTIONS           besides --check
#
# (A CSV file has no comments: what pipec reads begins below them.) The whole output has to be equal,
# with STDLIB for the folder of the standard library, and the exit status 1, or 0 where no error is
# expected: a mistake that is a legal program. With its fixes made, the case has to be accepted: it has
# no other mistake.
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile

SECTION = re.compile(r"^#--- (\S+)\n", re.M)


class Case:
    def __init__(self, name, text, want):
        self.name, self.text, self.want = name, text, want
        head = re.match(r"# (?P<what>.*)\n(?P<fixes>(?:# fix: .*\n)*)", text)
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
    for name, text in sections.items():
        stem, end = os.path.splitext(name)
        if end in (".pipe", ".csv"):
            yield Case(name, text, sections.get(stem + ".want"))


def run(pipec, folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write(re.sub("^#.*\n", "", text, flags=re.M) if name.endswith(".csv") else text)
    given = re.search(r"^# pipec: (.*)$", text, re.M)
    options = shlex.split(given[1]) if given else []
    done = subprocess.run([pipec, "--check", name] + options, cwd=folder, text=True,
                          capture_output=True, check=False)
    said = re.sub(r"\S*/share/pipe/stdlib/", "STDLIB/", done.stdout + done.stderr)
    return said, done.returncode


def table(paths):
    rows, count = [], 0
    for path in paths:
        if not list(cases(read(path)[1])):
            continue
        rows.append(f"\n## {os.path.basename(path)[:-len('.test')]}\n")
        rows.append("| case | mistake | pipec says |\n|---|---|---|")
        for c in cases(read(path)[1]):
            said = re.search(r"\[([a-z-]+)\]$", c.want or "", re.M)
            rows.append(f"| {c.name} | {c.what} | {said[1] if said else 'nothing: it is legal'} |")
            count += 1
    print(f"{count} mistakes.")
    print("\n".join(rows).replace("||", "\\|\\|"))


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    if "--table" in sys.argv:
        table(args)
        return 0
    pipec, paths = args[0], args[1:]
    bad = count = 0
    for path in paths:
        above, sections = read(path)
        with tempfile.TemporaryDirectory() as folder:
            for name, text in sections.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                    f.write(text)
            for c in list(cases(sections)):
                count += 1
                said, status = run(pipec, folder, c.name, c.text)
                stem = os.path.splitext(c.name)[0]
                problem = []
                if status != (1 if ": error: " in said or said.startswith("error: ") else 0):
                    problem.append(f"exit status {status}")
                if said != c.want and "--write" not in sys.argv:
                    problem.append("it is not what is expected\n" + "".join(difflib.unified_diff(
                        (c.want or "").splitlines(True), said.splitlines(True), "expected", "said")))
                if not c.what or not c.fixes:
                    problem.append("it does not begin with the mistake and its fix")
                elif c.fixed() is None:
                    problem.append("a fix does not fit")
                else:
                    after, status = run(pipec, folder, c.name, c.fixed())
                    if status != 0:
                        problem.append("with its fixes made, pipec says\n" + after)
                sections[stem + ".want"] = said
                bad += bool(problem)
                for p in problem:
                    print(f"{os.path.basename(path)}: {c.name}: {p}")
        if "--write" in sys.argv:
            out = above
            for name in [n for n in sections if not n.endswith(".want")]:
                out += f"#--- {name}\n{sections[name]}"
                want = os.path.splitext(name)[0] + ".want"
                if name.endswith((".pipe", ".csv")):
                    out += f"#--- {want}\n{sections[want]}"
            with open(path, "w", encoding="utf-8") as f:
                f.write(out)
    print(f"{count - bad} of {count} as expected")
    return 1 if bad or not count else 0


if __name__ == "__main__":
    sys.exit(main())

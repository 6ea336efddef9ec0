# SPDX-License-Identifier: MIT
"""claims.py PIPEC CLAIMS.txt FOLDER: is each claim of `pipec --help` held?

Claims are the parts of the text of an option, and of the text around the options, between full stops and semicolons. The
file has a section for each option, "== --check" ("== pipec": the text around them). Under it stands each claim, "- prove
and report", in the order of --help, with the commands of bash that hold it. They run in a copy of FOLDER, with `pipec` in
PATH; each must succeed. `no COMMAND` succeeds if COMMAND ends with status 1. Errors: a claim without commands, a section
of no option, and other words than those of --help.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

PRELUDE = 'set -eo pipefail; no() { local status=0; "$@" || status=$?; test $status = 1; }\n'


def claims(text):
    """{option: [claim]} of the text of --help."""
    found, name = {}, ""
    for line in text.split("\n"):
        option = re.match(r"  (?:-., )?(--[\w-]+|-\w)", line)
        if option:
            name = option[1]
            found[name] = ""
            line = line[26:] if line[25:26] == " " else ""
        elif re.match(r"[A-Z]", line):
            name = "pipec"
        if option or re.match(r"[A-Z]| {26}", line):
            found[name] = found.get(name, "") + " " + line.strip()
    return {name: [c.strip(".;") for c in re.split(r"(?<=[.;])\s", text.strip())] for name, text in found.items()}


def sections(text):
    """{option: [[claim, commands]]} of the file."""
    found = {}
    for part in re.split(r"^== ", text, flags=re.M)[1:]:
        option, _, rest = part.partition("\n")
        found[option] = [list(entry.partition("\n")[::2]) for entry in re.split(r"^- ", rest, flags=re.M)[1:]]
    return found


def main(pipec, path, folder):
    text = subprocess.run([pipec, "--help"], capture_output=True, text=True, check=True).stdout
    said = claims(text)
    with open(path, encoding="utf-8") as f:
        held = sections(f.read())
    bad = ran = 0
    for name in sorted(set(said) ^ set(held)):
        bad += 1
        print(f"{name}: " + ("no section" if name in said else "no option of --help"))
    environment = dict(os.environ, PATH=os.path.dirname(pipec) + os.pathsep + os.environ["PATH"])
    for name, entries in held.items():
        if name in said and [claim for claim, _ in entries] != said[name]:
            bad += 1
            print(f"{name}: --help says\n" + "\n".join("- " + claim for claim in said[name]))
        for claim, commands in entries:
            with tempfile.TemporaryDirectory() as scratch:
                shutil.copytree(folder, scratch, dirs_exist_ok=True)
                run = subprocess.run(["bash", "-c", PRELUDE + commands], cwd=scratch, env=environment, text=True,
                                     capture_output=True, check=False)
            ran += 1
            if run.returncode or not commands.strip():
                bad += 1
                print(f"{name}: {claim}: {'does not hold' if commands.strip() else 'no command'}\n{run.stderr}", end="")
    print(f"{len(held)} options, {ran} claims, {bad} wrong")
    return bad == 0 and ran > 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: claims.py PIPEC CLAIMS.txt FOLDER")
    sys.exit(not main(os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3]))

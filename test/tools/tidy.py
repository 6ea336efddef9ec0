# SPDX-License-Identifier: MIT
"""tidy.py BUILD ROOT: runs clang-tidy with the checks of .clang-tidy over the sources of a build."""
import json
import os
import subprocess
import sys

build, root = sys.argv[1:]
with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
    sources = {os.path.realpath(os.path.join(row["directory"], row["file"])) for row in json.load(f)}
folders = tuple(os.path.join(os.path.realpath(root), d) + os.sep for d in ("lang", "compiler", "runtime"))
ours = sorted(s for s in sources if s.startswith(folders) and s.endswith(".c"))
done = subprocess.run(["clang-tidy", "-p", build, "--quiet", *ours], capture_output=True, text=True, check=False)
print(done.stdout, end="")
print(f"{len(ours)} files")
sys.exit(done.returncode != 0 or not ours)

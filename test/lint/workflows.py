# SPDX-License-Identifier: MIT
# workflows.py ROOT: the workflows of CI are YAML, each job has a machine, a limit of time and steps, each step either runs
# something or uses an action, and the commands of ./dev and the programs of .ci that steps run are there. Prints one line
# per breach and exits 1 if there was one.
import glob
import os
import re
import sys

import yaml


def breaches(root, text):
    try:
        jobs = yaml.safe_load(text)["jobs"].items()
    except (yaml.YAMLError, TypeError, KeyError, AttributeError) as e:
        yield f"no workflow: {str(e).splitlines()[0]}"
        return
    with open(os.path.join(root, "dev"), encoding="utf-8") as f:
        commands = re.findall(r"^cmd_(\w+)\(\)", f.read(), re.M)
    for name, job in jobs:
        for key in "runs-on", "timeout-minutes", "steps":
            if not job.get(key):
                yield f"{name}: no {key}"
        for step in job.get("steps") or []:
            if ("run" in step) == ("uses" in step):
                yield f"{name}: a step has one of 'run' and 'uses', not {sorted(step)}"
            for command in re.findall(r"\./dev (\w+)", step.get("run", "")):
                if command not in commands:
                    yield f"{name}: ./dev has no command '{command}'"
            for program in re.findall(r"\.ci/\w+", step.get("run", "")):
                if not os.access(os.path.join(root, program), os.X_OK):
                    yield f"{name}: {program} cannot be run"


found = False
files = sorted(glob.glob(os.path.join(sys.argv[1], ".github", "workflows", "*.yml")))
for file in files:
    with open(file, encoding="utf-8") as f:
        for what in breaches(sys.argv[1], f.read()):
            found = True
            print(f"{os.path.basename(file)}: {what}")
if not files:
    print("no workflows found")
sys.exit(found or not files)

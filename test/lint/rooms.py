# SPDX-License-Identifier: MIT
# Arrows between the rooms of a source folder go one way. `rooms.py ROOT FOLDER...` prints one line per breach of the
# list FOLDER/ROOMS; with `--objects BUILD` also for symbols: a function may be declared in a lower room and defined in a
# higher one, where no include shows the arrow.
#
# FOLDER is the name of a folder, and after ':' those whose headers all of its rooms may use:
# compiler:lang,runtime/tables,runtime/include
import collections
import glob
import os
import re
import subprocess
import sys


def rooms_of(root, folder):
    """Rooms, lowest first."""
    with open(os.path.join(root, folder, "ROOMS"), encoding="utf-8") as f:
        return [m.group(0) for m in (re.match(r"[a-z][\w/]*", line) for line in f) if m]


def room_of(rooms, path):
    """The room that a path, relative to the folder, is in; '' for a file beside ROOMS, which may use all."""
    return next((r for r in rooms if path.startswith(r + "/")), "")


def sources(top):
    for where, _, names in os.walk(top):
        for name in sorted(names):
            if name.endswith((".c", ".h", ".cu", ".def")):
                yield os.path.relpath(os.path.join(where, name), top)


def includes(root, folder, lent):
    """Breaches that an #include shows."""
    rooms = rooms_of(root, folder)
    home = collections.defaultdict(list)  # of a header by its bare name: (folder, path)
    for top in [folder] + lent:
        for path in sources(os.path.join(root, top)):
            if not path.endswith(".c"):
                home[os.path.basename(path)].append((top, path))
    for name, at in sorted(home.items()):
        if len(at) > 1:
            yield f"{at[0][0]}/{at[0][1]}", 0, f"{at[1][0]}/{at[1][1]} has the same name"
    for path in sources(os.path.join(root, folder)):
        here = room_of(rooms, path)
        if not here and os.path.dirname(path):
            yield f"{folder}/{path}", 0, f"is in no room of {folder}/ROOMS"
        with open(os.path.join(root, folder, path), encoding="utf-8") as f:
            for n, line in enumerate(f, 1):
                m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
                if not m:
                    continue
                if "/" in m.group(1) and not m.group(1).startswith("nvtx3/"):
                    yield f"{folder}/{path}", n, f"includes {m.group(1)}: headers are included by their bare names"
                for top, at in home[m.group(1)]:
                    there = room_of(rooms, at)
                    if here and there and top == folder and rooms.index(there) > rooms.index(here):
                        yield (f"{folder}/{path}", n,
                               f"room {here} includes {m.group(1)} of room {there}, a higher one in {folder}/ROOMS")


def symbols(root, build, folder):
    """Breaches that the objects show."""
    rooms = rooms_of(root, folder)
    defined, used = {}, []
    for path in glob.glob(f"{build}/CMakeFiles/*.dir/{folder}/**/*.o", recursive=True):
        at = path.split(f".dir/{folder}/", 1)[1]
        here = room_of(rooms, at)
        if not here:
            continue
        for line in subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines():
            kind, name = line.split()[-2:]
            if kind in "TDRBCV":
                defined[name] = here
            elif kind == "U":
                used.append((here, at[:-2], name))
    if not defined:
        yield folder, 0, "no objects found"
    for here, at, name in sorted(set(used)):
        there = defined.get(name, here)
        if rooms.index(there) > rooms.index(here):
            yield f"{folder}/{at}", 0, f"room {here} uses {name} of room {there}, a higher one in {folder}/ROOMS"


if __name__ == "__main__":
    words, build = sys.argv[1:], None
    if words[0] == "--objects":
        build, words = words[1], words[2:]
    found = []
    for word in words[1:]:
        folder, _, lent = word.partition(":")
        found += includes(words[0], folder, [x for x in lent.split(",") if x])
        found += symbols(words[0], build, folder) if build else []
    for path, n, what in found:
        print(f"{path}:{n}: {what}")
    sys.exit(1 if found else 0)

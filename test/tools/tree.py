# SPDX-License-Identifier: MIT
"""Where the sources are, for tests that build parts of them with a change of their own."""
import os

FOLDERS = ("compiler", "lang", "runtime")


def files(root, suffix):
    """Paths of all files of the sources that end in suffix, sorted."""
    return sorted(os.path.join(at, name) for folder in FOLDERS
                  for at, _, names in os.walk(os.path.join(root, folder)) for name in names if name.endswith(suffix))


def source(root, name):
    """The path of the one file of that name."""
    found = [path for path in files(root, name) if os.path.basename(path) == name]
    assert len(found) == 1, (name, found)
    return found[0]


def include_flags(root):
    """-I for every folder that has a header."""
    return ["-I" + folder for folder in sorted({os.path.dirname(path) for path in files(root, ".h")})]

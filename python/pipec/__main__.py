# SPDX-License-Identifier: MIT
"""The program pipec: `python -m pipec`, and the command `pipec` of the installed package."""

import os
import sys

from ._library import prefix


def main() -> None:
    program = prefix() / "bin" / "pipec"
    try:
        os.execv(program, ["pipec", *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"pipec: cannot run {program}: {e.strerror}")


if __name__ == "__main__":
    main()

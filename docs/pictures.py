# SPDX-License-Identifier: MIT
"""Draws the pictures of README.md: its first program, by pipec, for a light and for a dark page.

usage: pictures.py PIPEC [DIR]     writes light.svg and dark.svg into DIR, by default beside this file
"""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FIGURE = "--figure=8.5in,9pt"

# What a colour of pipec's picture becomes on a dark page.
DARK = {
    '"white"': '"#0d1117"',  # the page
    "#fafafa": "#161b22",  # idle, and its hatching
    "#bdbdbd": "#3d444d",
    "#222": "#e6edf3",  # text, from the darkest
    "#444": "#b1bac4",
    "#666": "#9198a1",
    "#555": "#9198a1",  # transfers
    "#999": "#656c76",
    "#c3afd9": "#6e5494",  # stashes
    "#b3261e": "#ff7b72",  # what is proved
    "#3a1730": "#f778ba",  # U
}


def main(pipec, folder=HERE):
    readme = (HERE.parent / "README.md").read_text(encoding="utf-8")
    program = re.search(r"^```pipe[^\n]*\n(.*?)^```$", readme, re.S | re.M)[1]
    light = subprocess.run([pipec, "-", "--emit=svg", FIGURE], input=program, capture_output=True,
                           check=True, encoding="utf-8").stdout
    unused = [colour for colour in DARK if colour not in light]
    if unused:
        sys.exit(f"pictures.py: pipec no longer draws with {', '.join(unused)}")
    dark = re.sub("|".join(sorted(DARK, key=len, reverse=True)), lambda m: DARK[m[0]], light)
    for name, text in ("light.svg", light), ("dark.svg", dark):
        (pathlib.Path(folder) / name).write_text(text, encoding="utf-8")


if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
main(*sys.argv[1:])

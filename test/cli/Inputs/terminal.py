# SPDX-License-Identifier: MIT
"""terminal.py PIPEC FILE: what --show and --compare print on a terminal that this program plays."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

bad = []


def show(columns, *options, command="--show", **change):
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "TERM")}
    env.update({"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **change})
    host, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    p = subprocess.Popen([sys.argv[1], command, sys.argv[2], *options], stdout=terminal, stdin=terminal, env=env)
    os.close(terminal)
    text = b""
    while True:
        try:
            more = os.read(host, 65536)
        except OSError:
            break
        if not more:
            break
        text += more
    os.close(host)
    if p.wait(60) != 0:
        bad.append(f"{options} {change}: exit status {p.returncode}")
    return text.decode().replace("\r\n", "\n")


def rows(text):
    return [line for line in re.sub(r"\033\[[\d;]*m", "", text).split("\n") if line.startswith("rank")]


for columns in 50, 77, 120, 200:
    text = show(columns)
    if "\033[0;38;5;16;48;5;153m" not in text or "\033[0m" not in text:
        bad.append(f"no colour on a terminal of {columns} columns")
    longest = max(map(len, rows(text)))
    if not min(columns - 45, 80) <= longest <= columns:
        bad.append(f"rows of {longest} in {columns} columns")
if max(map(len, rows(show(200, COLUMNS="70")))) > 70:
    bad.append("COLUMNS does not win over the terminal")
for what, text in [("NO_COLOR", show(80, NO_COLOR="1")), ("TERM=dumb", show(80, TERM="dumb")),
                   ("--color=never", show(80, "--color=never"))]:
    if "\033" in text:
        bad.append(f"colour in spite of {what}")
for what, text in [("NO_COLOR set to nothing", show(80, NO_COLOR="")),
                   ("--color=always and NO_COLOR", show(80, "--color=always", NO_COLOR="1"))]:
    if "\033" not in text:
        bad.append(f"no colour with {what}")
table = show(60, command="--compare").split("\n")
if max(map(len, table)) > 60 or "left out in 60 columns: gap; --emit=csv has all" not in table:
    bad.append(f"--compare in 60 columns: {table}")
print("\n".join(bad) or "a terminal")
sys.exit(1 if bad else 0)

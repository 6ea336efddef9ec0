# SPDX-License-Identifier: MIT
"""watch.py PIPEC FOLDER pipe|terminal: pipec --watch while its files are edited in all the ways that editors have.

Every change must show its verdict; the fastest ones within ten seconds, for the files are looked at all the time. A busy
machine may take as long as PATIENCE_S. FOLDER has net.pipe, which imports part.pipe."""
import codecs
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

PATIENCE_S = 600
pipec, folder, kind = sys.argv[1:]
os.chdir(folder)
bad, took = [], []


def read(name):
    with open(name, encoding="utf-8") as f:
        return f.read()


def save(name, text):
    with open(name, "w", encoding="utf-8") as f:
        f.write(text)


def rename(name, text):
    save(name + "~", text)
    os.rename(name + "~", name)


class Watch:
    def __init__(self, *options, file="net.pipe", columns=100, lines=40):
        self.decoder = codecs.getincrementaldecoder("utf-8")() # a read may end within a character
        env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "TERM", "LINES")}
        env.update({"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"})
        if kind == "terminal":
            self.fd, self.terminal = os.openpty()
            self.size(columns, lines)
            self.was = termios.tcgetattr(self.terminal)
            out = self.terminal
        else:
            self.fd, out = os.pipe()
        self.p = subprocess.Popen([pipec, "--watch", file, *options], stdin=out if kind == "terminal" else None, stdout=out,
                                  stderr=out, env=env, preexec_fn=os.setpgrp)  # not a group without a parent: it could not stop
        if kind != "terminal":
            os.close(out)
        self.text = ""

    def size(self, columns, lines=40):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def more(self, wait):
        if select.select([self.fd], [], [], wait)[0]:
            try:
                got = os.read(self.fd, 65536)
            except OSError:
                return False
            self.text += self.decoder.decode(got).replace("\r\n", "\n")
            return bool(got)
        return True

    def until(self, pattern, what):
        """What was printed up to the end of a verdict in which the pattern is; that and more is forgotten."""
        begin = time.monotonic()
        while time.monotonic() < begin + PATIENCE_S:
            m = re.search("(?s)" + pattern + ".*?watching ", self.text)
            if m:
                took.append(time.monotonic() - begin)
                shown, self.text = self.text[:m.end()], self.text[m.end():]
                return shown
            if not self.more(0.05) or self.p.poll() is not None:
                break
        bad.append(f"{what}: no '{pattern}' in {self.text[-2000:]!r}, status {self.p.poll()}")
        return ""

    def quiet(self, seconds):
        """Nothing more is printed but the end of the last line."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.more(0.1)
        if "makespan" in self.text or "error" in self.text:
            bad.append(f"printed {self.text!r} for nothing")

    def leave(self, sig=signal.SIGINT, status=0):
        self.p.send_signal(sig)
        while self.p.poll() is None and self.more(0.05):
            pass
        try:
            got = self.p.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.p.kill()
            got = "none"
        while self.more(0) and kind != "terminal" and select.select([self.fd], [], [], 0)[0]:
            pass
        if got != status:
            bad.append(f"left by {sig} with status {got}, not {status}")
        if kind == "terminal":
            while select.select([self.fd], [], [], 0.2)[0] and self.more(0):
                pass
            if not self.text.endswith("\033[?7h\033[?25h\033[?1049l"):
                bad.append(f"the terminal is left with {self.text[-60:]!r}")
            if termios.tcgetattr(self.terminal) != self.was:
                bad.append("the settings of the terminal are not as they were")
            os.close(self.terminal)
        os.close(self.fd)


net, part = read("net.pipe"), read("part.pipe")
w = Watch()
first = w.until("makespan", "at first")
if "proved" not in first or "rank  0" not in first and "rank 0" not in first:
    bad.append(f"neither a report nor a grid: {first!r}")
if kind == "terminal" and not (first.startswith("\033[?1049h") and "\033[H\033[2J" in first and "\033[0;38;5;16" in first):
    bad.append(f"no screen or no colour: {first!r}")
save("net.pipe", net.replace("M = 4", "M = 5"))
w.until("M=5: .*makespan", "saved in place")
rename("net.pipe", net.replace("M = 4", "M = 6"))
w.until("M=6: .*makespan", "replaced")
save("part.pipe", part.replace("steady", "stedy"))
w.until(r"part.pipe:\d+:\d+: error: ", "an error in the import")
rename("part.pipe", part)
w.until("M=6: .*makespan", "the import put right")
os.remove("part.pipe")
w.until(r"net.pipe:\d+:\d+: error: .*\[import\]", "the import deleted")
save("part.pipe", part)
w.until("M=6: .*makespan", "the import made again")
os.remove("net.pipe")
w.until(r"error: cannot read net.pipe", "the file deleted")
save("net.pipe", net.replace("M = 4", "M = 7"))
w.until("M=7: .*makespan", "the file made again")
save("other.pipe", net)
os.utime("net.pipe~", None) if os.path.exists("net.pipe~") else None
w.quiet(1.5)
for m in range(11, 15):  # saved while it compiles
    save("net.pipe", net.replace("M = 4", f"M = {m}"))
w.until("M=14: .*makespan", "saved many times")
save("net.pipe", net.replace("P = 2, M = 4", "P = 64, M = 20000"))  # takes long
time.sleep(0.3)
save("net.pipe", net)
w.until("M=4: .*makespan", "saved during a long compile")
os.makedirs("real", exist_ok=True)
save("real/net.pipe", net.replace("M = 4", "M = 8"))
os.remove("net.pipe")
os.symlink("real/net.pipe", "net.pipe")
w.until("M=8: .*makespan", "a link put in its place")
rename("real/net.pipe", net.replace("M = 4", "M = 9"))
w.until("M=9: .*makespan", "what the link points to replaced")
os.remove("net.pipe")
rename("net.pipe", net)
w.until("M=4: .*makespan", "the link replaced")
if kind == "terminal":
    w.size(60)
    w.p.send_signal(signal.SIGWINCH)
    shown = w.until("makespan", "another width")
    shown = re.sub(r"\033\[[\d;?]*[A-Za-z]", "", shown)
    if max(len(line) for line in shown.split("\n") if line.startswith("rank")) > 60:
        bad.append(f"not drawn for the new width: {shown!r}")
    w.size(100, 6)
    w.p.send_signal(signal.SIGWINCH)
    shown = w.until("more lines", "few lines")
    if shown[shown.rindex("\033[2J"):].count("\n") != 4:
        bad.append(f"more than the terminal has lines: {shown!r}")
    w.p.send_signal(signal.SIGTSTP)
    if not os.WIFSTOPPED(os.waitpid(w.p.pid, os.WUNTRACED)[1]):
        bad.append("does not stop")
    while "\033[?1049l" not in w.text and w.more(1):
        pass
    w.text = ""
    w.p.send_signal(signal.SIGCONT)
    if "\033[?1049h" not in w.until("makespan", "gone on"):
        bad.append("does not enter its screen again")
w.leave()

save("net.pipe", net.replace("P = 2", "P = 1/0"))
w = Watch()
w.until("error: ", "an error at first")
save("net.pipe", net)
w.until("makespan", "put right")
w.leave(signal.SIGTERM, -signal.SIGTERM)

w = Watch("--emit=svg", "-o", "net.svg", "--sends=rendezvous")
w.until("", "a picture")
one = read("net.svg")
save("net.pipe", net.replace("M = 4", "M = 6"))
w.until("", "another picture")
if read("net.svg") == one or [f for f in os.listdir(".") if f.startswith("net.svg.")]:
    bad.append("the picture was not made again, or its temporary file is left")
w.leave()
if not bad and min(took[1:]) > 10:
    bad.append(f"no verdict within ten seconds: {took}")
print("\n".join(bad) or f"{len(took)} verdicts")
sys.exit(1 if bad else 0)

# SPDX-License-Identifier: MIT
"""complete_zsh.py SCRIPT FILES < lines: what zsh completes at the end of each line, typed at its prompt in directory
FILES with SCRIPT as the completion of pipec. Prints "line> matches" in the order of zsh's names."""
import os
import pty
import select
import shutil
import sys

script, files = map(os.path.realpath, sys.argv[1:])
home = os.path.join(os.path.dirname(script), "zsh")
os.makedirs(home, exist_ok=True)
shutil.copy(script, home + "/_pipec")
START = """PROMPT= RPROMPT= ; stty -echo; unsetopt beep
fpath=(%s $fpath); autoload -Uz compinit; compinit -u -d %s/dump
zstyle ':completion:*' list-separator ''
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]]; then builtin compadd "$@"; return $?; fi
  local -a hits; builtin compadd -A hits "$@"; local x; for x in $hits; do print; print -r -- "HIT:${x}:"; done
  builtin compadd "$@"
}
done_() { print; print -r -- DONE; }
bindkey '^I' complete-word; cd %s; print READY
""" % (home, home, files)


def read_until(fd, word):
    text = b""
    while word not in text:
        if not select.select([fd], [], [], 600)[0]:
            sys.exit("zsh said %r and no %r" % (text, word))
        try:
            text += os.read(fd, 65536)
        except OSError:
            sys.exit("zsh ended: %r" % text)
    return text


for line in sys.stdin.read().splitlines():
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], dict(os.environ, TERM="dumb", HOME=home, COLUMNS="500", LINES="50"))
    with open(home + "/start", "w") as f:
        f.write(START)
    os.write(fd, ("source %s/start\n" % home).encode())
    read_until(fd, b"\nREADY")
    os.write(fd, ("comppostfuncs=(done_)\npipec %s\t" % line).encode())
    said = read_until(fd, b"\nDONE").decode().replace("\r", "")
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    os.close(fd)
    print("%s> %s" % (line, ",".join(sorted({h[4:-1] for h in said.split("\n") if h.startswith("HIT:")}))))

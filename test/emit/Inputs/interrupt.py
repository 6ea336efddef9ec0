# SPDX-License-Identifier: MIT
"""interrupt.py PIPEC FILE DIR: kills PIPEC while its temporary file is there; DIR must be empty then."""
import os
import signal
import subprocess
import sys
import time

pipec, text, folder = sys.argv[1:]

def default():  # a shell may have handed down signals that are ignored
    for sig in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
        signal.signal(sig, signal.SIG_DFL)


for sig in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
    for mbs in 125, 500, 2000, 8000, 32000, 128000:  # a compiler that is done before we look is given more to write
        p = subprocess.Popen([pipec, text, "-DP=16", f"-DM={mbs}", "-o", os.path.join(folder, "s.c")],
                             preexec_fn=default)
        while p.poll() is None and not os.listdir(folder):
            time.sleep(0.0005)
        if p.poll() is None:
            p.send_signal(sig)
        status = p.wait()
        if status == 0:
            os.remove(os.path.join(folder, "s.c"))
            continue
        left = os.listdir(folder)
        if status != -sig or left:
            sys.exit(f"{sig.name}: exit status {status}, left {left}")
        break
    else:
        sys.exit("it was never caught writing")
print("nothing left")

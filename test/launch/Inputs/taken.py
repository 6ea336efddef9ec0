# SPDX-License-Identifier: MIT
# taken.py PROGRAM SCHEDULE: starts both ranks as torchrun does. Of the four ports after MASTER_PORT the first is taken
# by a program that is no store, the second by the store of another run. Then all four are taken. Prints what ranks say.
import os
import socket
import subprocess
import sys
import threading


def four():
    """Four ports in a row: listening sockets."""
    while True:
        first = socket.socket()
        first.bind(("127.0.0.1", 0))
        sockets = [first]
        try:
            for i in range(1, 4):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", first.getsockname()[1] + i))
        except (OSError, OverflowError):
            for s in sockets:
                s.close()
            continue
        for s in sockets:
            s.listen()
        return sockets


def answer(listener, message):
    """Says the same to all who come."""
    try:
        while True:
            peer = listener.accept()[0]
            peer.recv(4096)
            peer.sendall(message)
            peer.close()
    except OSError:
        pass


def refusal(text):
    """What a store says to a stranger: StoreHead and text."""
    return b"".join(n.to_bytes(4, sys.byteorder) for n in (0x53504950, 2, len(text), 0)) + text


def start(rank, base):
    env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=str(base - 1), PIPE_STORE_KEY="k")
    command = [*sys.argv[1:], "-D", "P=2", "-D", "M=4", "--engine", "cuda", "--steps", "1"]
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


taken = four()
base = taken[0].getsockname()[1]
for listener, message in zip(taken, (b"HTTP/1.1 400\r\n\r\n" + bytes(99), refusal(b"store: PIPE_STORE_KEY is not the key of this run"))):
    threading.Thread(target=answer, args=(listener, message), daemon=True).start()
taken[2].close()
taken[3].close()
ranks = [start(1, base), start(0, base)]
for said in [run.communicate(timeout=60)[1] for run in ranks]:
    print(said.replace(f":{base + 2}\n", ":third\n"), end="")
print("status", *(run.returncode for run in ranks))

taken = four()
run = start(0, taken[0].getsockname()[1])
print(run.communicate()[1] + f"status {run.returncode}")

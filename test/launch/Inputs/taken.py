# SPDX-License-Identifier: MIT
# taken.py PROGRAM SCHEDULE: starts rank 0 as torchrun does, whose port after MASTER_PORT is taken; prints what it says.
import os
import socket
import subprocess
import sys

taken = socket.socket()
taken.bind(("127.0.0.1", 0))
taken.listen()
port = taken.getsockname()[1]
env = dict(os.environ, RANK="0", WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=str(port - 1), PIPE_STORE_KEY="k")
run = subprocess.run([sys.argv[1], sys.argv[2], "-D", "P=2", "-D", "M=4", "--engine", "cuda"], env=env,
                     stderr=subprocess.PIPE, text=True, check=False)
print(run.stderr + f"status {run.returncode}")

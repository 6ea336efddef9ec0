# SPDX-License-Identifier: MIT
# attack.py WHAT HOST:PORT FILE: what somebody without the key does to a store, again and again until the store is gone.
# FILE appears once it has begun.
#
#   exit      says that rank 1 was killed by signal 9
#   badhello  says hello in the words of version 3, as a rank of another size
#   seat      takes the place of rank 1, with another program, under a key of its own
#   slow      sends a hello, five bytes a second
#   slowlate  announces a value of 1 MiB and sends it so
#   flood     opens connections as fast as it can, with random bytes, and keeps 200 of them
#   silent    opens 100 connections and says nothing
import os
import socket
import struct
import sys
import time

what, (host, port), sign = sys.argv[1], sys.argv[2].rsplit(":", 1), sys.argv[3]
HELLO, VALUE, EXIT, JOIN = 0, 3, 10, 11


def message(kind, payload):
    return struct.pack("IIII", 0x53504950, kind, len(payload), 0) + payload


hello = message(HELLO, struct.pack("II64s", 5, 0, b"0123456789abcdef"))
gone = message(EXIT, struct.pack("Ii", 1, 9))
join = struct.pack("IIQ128s", 1, 4, 0xDEF, b"evil")
texts = {
    "exit": [gone, hello + gone],
    "badhello": [message(HELLO, struct.pack("IIIIQ128s", 3, 0, 99, 0, 0xDEF, b"evil"))],
    "seat": [hello + message(JOIN, join), message(JOIN, join)],
    "slow": [hello],
    "slowlate": [message(VALUE, bytes(1 << 20))],
    "flood": [os.urandom(400), hello[:20]],
    "silent": [b""],
}[what]
many = {"flood": 200, "silent": 100}.get(what, 1)
open_ones = []
try:
    while True:
        for text in texts:
            s = socket.create_connection((host, int(port)))
            open_ones.append(s)
            try:
                if what.startswith("slow"):
                    s.sendall(text[:20])
                    with open(sign, "w"):
                        pass
                    for one in text[20:]:
                        time.sleep(0.2)
                        s.send(bytes([one]))
                else:
                    s.sendall(text)
            except ConnectionError:
                pass
            while len(open_ones) >= many:
                open_ones.pop(0).close()
        if len(open_ones) == many - 1:
            with open(sign, "w"):
                pass
        if what != "flood":
            time.sleep(0.01)
except OSError:
    pass

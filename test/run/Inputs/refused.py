# SPDX-License-Identifier: MIT
# refused.py DIR COMMAND...: what is said of files of weights that break a rule of safetensors, or do not fit the model.
# COMMAND is tiny_train with a schedule of two stages.
import json
import os
import subprocess
import sys

import tensors

folder, command = sys.argv[1], sys.argv[2:]


def train(*more):
    run = subprocess.run(command + list(more), capture_output=True, text=True)
    return run.returncode, (run.stderr or run.stdout).replace(folder + "/", "").strip()


assert train("--steps", "2", "--checkpoint", folder + "/ck")[0] == 0
stage = [tensors.read(f"{folder}/ck/step-2.1/stage-{i}.safetensors")[0] for i in (0, 1)]
(A, (dtype, shape, one)), (B, (_, _, two)) = [list(part.items())[0] for part in stage]
n = len(one)
assert dtype == "U8" and shape == [n] and len(two) == n
data = one + two


def row(at, **other):
    return dict({"dtype": "U8", "shape": [n], "data_offsets": [at, at + n]}, **other)


def put(name, rows, rest=data):
    with open(f"{folder}/{name}", "wb") as f:
        f.write(rest if rows is None else tensors.head(rows) + rest)


def tell(what, rows, rest=data):
    put("w.safetensors", rows, rest)
    code, said = train("--steps", "0", "--weights", folder + "/w.safetensors")
    print(f"{what}: {code} {said}")


def tell_index(what, index):
    with open(folder + "/i.json", "w", encoding="utf-8") as f:
        f.write(index if isinstance(index, str) else json.dumps(index))
    code, said = train("--steps", "0", "--weights", folder + "/i.json")
    print(f"{what}: {code} {said}")


both = {A: row(0), B: row(n)}
text = json.dumps(both)
tell("fits", both)
tell("in another order", {B: row(0), A: row(n)}, two + one)
tell("with blanks and escapes", (" \n" + json.dumps(both, indent=1).replace("s", "\\u0073").replace('"\\u0073hape', '"shape')
                                 .replace("data_off\\u0073et\\u0073", "data_offsets")).strip().encode() + b"   ")
tell("nothing", None, b"")
tell("seven bytes", None, b"\x01" * 7)
tell("a head longer than the file", None, b"\x20" + b"\0" * 7 + b"{}")
tell("a head of 2^63", None, b"\0" * 7 + b"\x80" + b"{}")
tell("a blank in front", b" " + text.encode())
tell("no object", b"[]", b"")
tell("cut short", text.encode()[:-1])
tell("behind the end", text.encode() + b"}")
tell("not UTF-8", text.replace(A, "\udcff").encode("utf-8", "surrogateescape"))
tell("half a pair", text.replace(A, "\\ud83d").encode())
tell("a NUL", text.replace(A, "\\u0000").encode())
tell("no escape", text.replace(A, "\\x").encode())
tell("a line in a name", text.replace(A, "a\nb").encode())
tell("a long name", {"n" * 200: row(0)})
tell("the same name", text.replace(B, A).encode())
tell("metadata twice", ('{"__metadata__":{},"__metadata__":{},' + text[1:]).encode())
tell("metadata that is a number", {**both, "__metadata__": {"step": 2}})
tell("dtype twice", text.replace('"dtype"', '"dtype": "U8", "dtype"', 1).encode())
tell("another member", {A: row(0, strides=[1]), B: row(n)})
tell("no shape", {A: {"dtype": "U8", "data_offsets": [0, n]}, B: row(n)})
tell("dtype", {A: row(0, dtype="F4"), B: row(n)})
tell("nine dimensions", {A: row(0, shape=[n] + 8 * [1]), B: row(n)})
tell("nested", text.replace(f"[{n}]", "[" * 10000 + "]" * 10000, 1).encode())
tell("a negative number", {A: row(0, shape=[-n]), B: row(n)})
tell("a fraction", {A: row(0, shape=[n + 0.5]), B: row(n)})
tell("a zero in front", text.replace(f"[{n}]", f"[0{n}]", 1).encode())
tell("2^64", {A: row(0, shape=[1 << 64]), B: row(n)})
tell("2^63 times 4", {A: row(0, shape=[1 << 63, 4]), B: row(n)})
tell("other bytes than the shape has", {A: row(0, shape=[n + 1]), B: row(n)})
tell("backwards", {A: row(0, data_offsets=[n, 0]), B: row(n)})
tell("an overlap", {A: row(0), B: row(n - 1)})
tell("a gap", {A: row(0), B: row(n + 1)}, data + b"x")
tell("data cut short", both, data[:-1])
tell("data too long", both, data + b"x")
tell("data of nothing", {})
tell("a checksum", {**both, "__metadata__": {"xxh3:" + A: "0" * 16}})
tell("no checksum", {**both, "__metadata__": {"xxh3:" + A: "0"}})
tell("another shape", {A: row(0, dtype="U16", shape=[n // 4, 2]), B: row(n)})
tell("a tensor too few", {A: row(0)}, one)
tell("a tensor too many", {**both, "C": row(2 * n)}, data + one)

for name, part in ("a", {A: row(0)}), ("b", {B: row(0)}):
    put(name + ".safetensors", part, one if name == "a" else two)
index = {"metadata": {"total_size": 2 * n, "of": [1.5e3, {"a": None}]}, "weight_map": {A: "a.safetensors", B: "b.safetensors"}}
tell_index("an index", index)
tell_index("a file elsewhere", {"weight_map": {A: "../a.safetensors"}})
tell_index("a file that is not there", {"weight_map": {A: "c.safetensors"}})
tell_index("one file of two", {"weight_map": {A: "a.safetensors"}})
tell_index("a deep index", '{"metadata": ' + "[" * 100 + "]" * 100 + "}")
tell_index("no index", "[]")
put("b.safetensors", {A: row(0)}, one)
tell_index("a tensor in two files", index)
os.remove(folder + "/i.json")
print("no file: %d %s" % train("--steps", "0", "--weights", folder + "/i.json"))
print("and then a checkpoint: %d %s" % train("--steps", "3", "--resume", "--checkpoint", folder + "/ck", "--weights", folder + "/ck/step-2.1/model.safetensors.index.json"))

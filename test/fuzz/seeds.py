# SPDX-License-Identifier: MIT
# seeds.py PIPEC DIR: writes the inputs from which the fuzzers start, DIR/TARGET/NUMBER. They are the schedules and tests of
# this tree, with small parameters, and for the readers of JSON and CSV what PIPEC makes of schedules. Each text to
# compile gets a line of letters (compile.c), in turn. For resume.c there are two edits of each kind in each file, for
# names.c a plain name and one of all that is escaped, for store.c each message of a rank. resume.c and store.c get DRAWN
# more, which are the same in every run: their threads make what libFuzzer would try a matter of chance.
import pathlib
import random
import re
import subprocess
import sys

LETTERS = {
    "pipe": ["", "s", "h", "t", "f", "c", "m", "K", "a", "A", "zE", "zP", "1p", "2", "3P", "4T", "5b", "d", "=", "=s", "=c",
             "nB", "l", "k"],
    "json": ["j", "jP", "jk", "jzE", "jf", "jb", "jT"],
    "csv": ["v", "vx", "vxP", "vE", "vTb", "vB", "vPB", "vk", "vzE"],
}
MOST_BYTES = {"pipe": 2500, "json": 5000, "csv": 2500}  # without comments
PROFILES = [
    b'{"pipe_profile": 1, "stages": [{"F": 10, "B": 20, "act": 64}, {"F": 12, "B": 21, "act": 64}],'
    b' "links": [{"from": [0], "to": [1]}]}',
    b"""node1 -- Input -- forward_compute_time=1.500, backward_compute_time=2.000, activation_size=64.000, parameter_size=1.000
\tnode1 -- node2
node2 -- Conv(1, 2) -- forward_compute_time=1.000, backward_compute_time=2.500, activation_size=[8.0; 8.0], parameter_size=7.000
\tnode2 -- node3
node3 -- ReLU -- forward_compute_time=0.250, backward_compute_time=0.125, activation_size=40.000, parameter_size=0.000
""",
]

DRAWN = 1000

pipec, out = sys.argv[1], pathlib.Path(sys.argv[2])
root = pathlib.Path(__file__).resolve().parents[2]
count = {}


def write(target, data):
    n = count[target] = count.get(target, -1) + 1
    path = out / target / str(n)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def small(text):
    text = re.sub(rb"#[^\n]*\n", b"\n", text)
    text = re.sub(rb"\n\s*\n", b"\n", text)
    return re.sub(rb"\b([A-Z]) = \d+(?=[,)])", lambda m: m[1] + (b" = 4" if m[1] == b"M" else b" = 2"), text)


def add(kind, text):
    if len(text) > MOST_BYTES[kind]:
        return
    n = count[kind] = count.get(kind, -1) + 1
    if kind == "pipe":
        write("text", text)
        if b"import" in text:  # which compile.c refuses
            return
        if n % 4 == 0:
            text += b"\f" + PROFILES[n // 4 % 2]
    write("compile", LETTERS[kind][n % len(LETTERS[kind])].encode() + b"\n" + text)


for folder in "stdlib", "examples", "test":
    for path in sorted((root / folder).rglob("*.pipe")):
        add("pipe", small(path.read_bytes()))
for path in sorted((root / "test").rglob("*.test")):  # files that split-file makes of it
    parts = re.split(rb"^#--- .*?([^.\n]*)\n", path.read_bytes(), flags=re.M)
    for kind, text in zip(parts[1::2], parts[2::2]):
        if kind.decode() in LETTERS:
            add(kind.decode(), small(text) if kind == b"pipe" else re.sub(rb"^#.*\n", b"", text, flags=re.M))
for path in sorted((root / "stdlib").glob("*.pipe")):
    for form in "json", "csv", "comms-csv":
        made = subprocess.run([pipec, path, f"--emit={form}", "-D", "P=2", "-D", "M=2"], capture_output=True, check=False)
        if made.returncode == 0:
            add(form.split("-")[-1], made.stdout)
for how in range(24):  # six files, four edits
    for right in 0, 1:
        write("resume", bytes([right, how, 40, 0, 49, how, 90, 0, 49]))
for text in b"plain", b'a"\\*/ /* ??/ // <&>\n\t\x1b\x7f \xc2\x9b \xe2\x80\xae \xff':
    write("names", text)
write("resume", bytes([1]) + bytes([11, 78, 0, ord("9")]) * 9)  # a manifest of more losses than it has
for data, text in (
        (0, b"{}"), (0, b'{"__metadata__":{"format":"pt","note":"\\u00e9\\ud83d\\ude00\\n"}}  '),
        (24, b'{"b":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"a":{"data_offsets":[16,24],"shape":[],"dtype":"F64"}}'),
        (6, b'{ "\xc3\xa9" : {"dtype":"BF16", "shape":[3], "data_offsets":[0, 6]},\n"__metadata__":{"xxh3:\xc3\xa9":"0123456789abcdef"}}'),
        (3, b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"BOOL","shape":[0,18446744073709551615],'
            b'"data_offsets":[2,2]},"c":{"dtype":"I8","shape":[1,1,1,1,1,1,1,1],"data_offsets":[2,3]}}')):
    write("safetensors", bytes([0, data, 0]) + text)
for text in (b'{"metadata":{"total_size":1.5e3,"x":[null,true,{"a":[]}]},"weight_map":{"a":"x.safetensors","b":"y.safetensors"}}',
             b'{"weight_map":{"a":"../x"}}', b'{"metadata":' + b"[" * 40 + b"]" * 40 + b"}"):
    write("safetensors", bytes([1, 0, 0]) + text)
for flags in range(8):
    write("store", bytes([flags]) + b"".join(bytes([kind, len(rest)]) + rest for kind, rest in (
        (3, bytes(8) + b"value"), (3, b"\xff" * 4 + bytes(4)), (7, b"here"), (10, bytes(8)), (5, bytes(4) + b"failed"), (4, b""), (9, b""))))
    write("store", bytes([flags]) + bytes([11, 144]) + bytes([0, 0, 0, 0, 1, 0, 0, 0]) + bytes(136))
rng = random.Random(1)
for _ in range(DRAWN):
    write("resume", bytes([rng.randrange(2)]) + rng.randbytes(4 * rng.randint(1, 6)))
    messages = [(rng.choice((rng.randrange(16), rng.randrange(256))), rng.randbytes(rng.choice((0, 4, 8, 40, 144, 255))))
                for _ in range(rng.randint(1, 6))]
    whole = b"".join(bytes([kind, len(rest)]) + rest for kind, rest in messages)
    write("store", bytes([rng.randrange(8)]) + whole[:rng.choice((len(whole), rng.randint(0, len(whole))))])

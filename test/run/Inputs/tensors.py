# SPDX-License-Identifier: MIT
"""Files of safetensors, read and written after the text of the format alone: {name: (dtype, shape, bytes)}."""
import json
import math
import struct

SIZE = {"U8": 1, "BOOL": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4,
        "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8, "C64": 8}


def unique(pairs):
    assert len(dict(pairs)) == len(pairs), "a name twice"
    return dict(pairs)


def read(path):
    """The tensors, and the metadata. Fails where the format is broken."""
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        head, data = f.read(n), f.read()
    assert head[:1] == b"{" and n <= 100_000_000
    rows = json.loads(head.decode("utf-8"), object_pairs_hook=unique)
    metadata = rows.pop("__metadata__", {})
    assert all(isinstance(value, str) for value in metadata.values())
    end, tensors = 0, {}
    for name, row in sorted(rows.items(), key=lambda item: item[1]["data_offsets"]):
        assert set(row) == {"dtype", "shape", "data_offsets"}
        at, after = row["data_offsets"]
        assert at == end and after - at == math.prod(row["shape"]) * SIZE[row["dtype"]]
        assert (8 + n + at) % SIZE[row["dtype"]] == 0, "not aligned"
        end = after
        tensors[name] = row["dtype"], row["shape"], data[at:after]
    assert end == len(data)
    return tensors, metadata


def head(rows):
    """The first bytes of a file, of a text or of what becomes JSON."""
    text = rows if isinstance(rows, bytes) else json.dumps(rows).encode()
    return struct.pack("<Q", len(text)) + text


def write(path, tensors, metadata=None):
    """Unlike pipec: members in another order, with blanks, names with escapes, the metadata last."""
    rows, data = {}, b""
    for name, (dtype, shape, value) in sorted(tensors.items(), reverse=True):
        rows[name] = {"data_offsets": [len(data), len(data) + len(value)], "shape": shape, "dtype": dtype}
        data += value
    if metadata:
        rows["__metadata__"] = metadata
    with open(path, "wb") as f:
        f.write(head(json.dumps(rows, indent=2).encode()) + data)

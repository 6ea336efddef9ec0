# SPDX-License-Identifier: MIT
# weights.py DIR GPT PACKAGE: trains GPT (1f1b of 4 ranks) and compares what its checkpoint holds with what it says of its
# weights; then writes them to a file, from which GPT begins. PACKAGE: `format` reads and writes by tensors.py, `numpy` and
# `torch` by the package safetensors.
import importlib
import json
import os
import subprocess
import sys

import tensors

folder, gpt, package = sys.argv[1:]
D, SEQ, LAYERS, VOCAB = 16, 16, 8, 256
LAYER = {"ln1_g": [D], "ln1_b": [D], "qkv_w": [3 * D, D], "qkv_b": [3 * D], "proj_w": [D, D], "proj_b": [D], "ln2_g": [D],
         "ln2_b": [D], "fc_w": [4 * D, D], "fc_b": [4 * D], "out_w": [D, 4 * D], "out_b": [D]}
# in the order of its hash
WANT = {"wte": [VOCAB, D], "wpe": [SEQ, D]}
WANT.update({f"layer{i}.{name}": shape for i in range(LAYERS) for name, shape in LAYER.items()})
WANT.update({"lnf_g": [D], "lnf_b": [D], "head_w": [VOCAB, D]})


def run(*more):
    command = [gpt, "--data", folder + "/text", "--d", str(D), "--seq", str(SEQ), "--layers", str(LAYERS), "--heads", "2",
               "--hash", *more]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def load(path):
    """The tensors of a file: {name: (dtype, shape, bytes)}."""
    if package == "format":
        return tensors.read(path)[0]
    module = importlib.import_module("safetensors." + package)
    loaded = module.load_file(path)
    arrays = {name: value.numpy() if package == "torch" else value for name, value in loaded.items()}
    return {name: ({"float32": "F32"}[str(a.dtype)], list(a.shape), a.tobytes()) for name, a in arrays.items()}


def save(path, values):
    if package == "format":
        return tensors.write(path, values, {"note": "of a \"stranger\" \u200b\U0001f600\n"})
    numpy = importlib.import_module("numpy")
    arrays = {name: numpy.frombuffer(data, "f4").reshape(shape) for name, (_, shape, data) in values.items()}
    if package == "torch":
        torch = importlib.import_module("torch")
        arrays = {name: torch.tensor(a) for name, a in arrays.items()}
    return importlib.import_module("safetensors." + package).save_file(arrays, path)


said = run("--steps", "3", "--checkpoint", folder + "/ck")
at = folder + "/ck/step-3.1/"
with open(at + "model.safetensors.index.json", encoding="utf-8") as f:
    index = json.load(f)
weights = {}
for name in sorted(set(index["weight_map"].values())):
    assert tensors.read(at + name)[1]["step"] == "3" and tensors.read(at + name)[1]["format"] == "pt"
    for key, tensor in load(at + name).items():
        assert index["weight_map"][key] == name
        weights[key] = tensor
assert {key: shape for key, (_, shape, _) in weights.items()} == WANT
assert {dtype for dtype, _, _ in weights.values()} == {"F32"}
assert index["metadata"]["total_size"] == sum(len(data) for _, _, data in weights.values())
value = 0xcbf29ce484222325
for key in WANT:
    for byte in weights[key][2]:
        value = (value ^ byte) * 0x100000001b3 & (1 << 64) - 1
assert said[-1] == "weights %016x" % value, (said[-1], "%016x" % value)

moments = {}
for name in sorted(os.listdir(at)):
    if name.endswith(".state.safetensors"):
        assert name not in index["weight_map"].values()
        moments.update(load(at + name))
assert {key: shape for key, (_, shape, _) in moments.items()} == \
    {key + part: shape for key, shape in WANT.items() for part in (".m", ".v")}
print(f"{len(weights)} weights and {len(moments)} moments as the program has them")

save(folder + "/all.safetensors", weights)
fresh, own, theirs = (run("--steps", "1", *more) for more in
                      ([], ["--weights", at + "model.safetensors.index.json"], ["--weights", folder + "/all.safetensors"]))
assert own == theirs != fresh, (own, theirs, fresh)
print("a training begins from the file")

# SPDX-License-Identifier: MIT
# Published counts against the layers of model cards: parameters of GPT-2 and of table 1 of Narayanan et al. 2021, with
# its formulas of parameters (2) and floating point operations (3); activations of Korthikanti et al. 2022, summed up
# here from the tensors that section 4 lists.
#
#   model.py PIPEC
import json
import re
import subprocess
import sys

pipec = sys.argv[1]


def stages(n, **card):
    """The costs of a card's layers cut into n stages; None: one stage for each layer."""
    n = n or card["layers"] + 2
    json.dump({"pipe_profile": 1, "model": card}, open("card.json", "w"))
    out = subprocess.run([pipec, "--emit=json", "1f1b", "-DP=%d" % n, "-DM=1", "--profile=card.json"], text=True,
                         capture_output=True, check=True).stdout
    return [json.loads(line.rstrip(",]}") + "}") for line in re.findall(r'^\{"stage":.*', out, re.M)]


def activations(b, s, h, a, e, flash):
    scores = 0 if flash else a * s * s * b
    attention = e * s * b * h + 2 * e * s * b * h + e * s * b * h + e * scores + scores + e * scores + e * s * b * h + s * b * h
    perceptron = e * s * b * h + 4 * e * s * b * h + 4 * e * s * b * h + s * b * h
    return attention + perceptron + 2 * e * s * b * h


# ---- parameters: without the head's matrix, which is the embedding's there ----
for layers, hidden, heads, count in (12, 768, 12, 124439808), (24, 1024, 16, 354823168):
    for n in 1, 3, None:
        rows = stages(n, layers=layers, hidden=hidden, heads=heads, sequence=1024, vocabulary=50257, flops="1T")
        assert sum(y["weight"] for y in rows) == 2 * (count + 50257 * hidden), (layers, n)
        assert all(y["opt"] == 6 * y["weight"] and y["grad"] == y["weight"] for y in rows)

table = [  # heads, hidden, layers, billions of parameters
    (24, 2304, 24, 1.7), (32, 3072, 30, 3.6), (32, 4096, 36, 7.5), (48, 6144, 40, 18.4), (64, 8192, 48, 39.1),
    (80, 10240, 60, 76.1), (96, 12288, 80, 145.6), (128, 16384, 96, 310.1), (128, 20480, 105, 529.6),
    (160, 25600, 128, 1008.0), (96, 12288, 96, 174.6)]
for a, h, l, billions in table:
    b, s, V = 2, 2048, 51200
    rows = stages(None, layers=l, hidden=h, heads=a, sequence=s, vocabulary=V, microbatch=b, flops=312 * 10**12,
                  efficiency=0.4)
    count = sum(y["weight"] for y in rows) // 2 - V * h - 2 * h
    assert count == 12 * l * h * h + 13 * l * h + (V + s) * h and round(count / 1e9, 1) == billions, (h, count)
    flops = 0.4 * 312e3 * (sum(y["F"] + y["I"] + y["W"] for y in rows) + sum(y["F"] for y in rows[1:-1]))
    want = 96 * b * s * l * h * h * (1 + s / (6 * h) + V / (16 * l * h))
    assert abs(flops / want - 1) < 1e-6, (h, flops, want)

# ---- activations ----
for l, h, a, saved in (96, 12288, 96, 70), (105, 20480, 128, 65):  # GPT-3 and MT-NLG, percent
    kept = {}
    for e in 2, 4:
        for flash in False, True:
            rows = stages(None, layers=l, hidden=h, heads=a, sequence=2048, vocabulary=51200, bytes=e, flops="312T",
                          flash=flash)
            assert all(y["act"] == activations(1, 2048, h, a, e, flash) for y in rows[1:-1]), (h, e, flash)
            assert all(y["boundary"] == e * 2048 * h for y in rows[:-1])
            assert rows[-1]["act"] == 2 * e * 2048 * h + 4 * 2048 * 51200 and rows[0]["act"] == 2048 * h
            kept[e, flash] = rows[1]["act"]
            assert rows[1]["opt"] == rows[1]["weight"] // e * (12 if e == 2 else 8)
    assert kept[2, False] == 2048 * h * (34 + 5 * a * 2048 / h)
    assert round(100 * (1 - kept[2, True] / kept[2, False])) == saved, h

# ---- layers divided over t ranks: section 4.2.1 there, and Shoeybi et al. 2019, figure 3 ----
b, s, V, l, h, a = 2, 1024, 51200, 3, 2048, 32
whole = stages(None, layers=l, hidden=h, heads=a, sequence=s, vocabulary=V, microbatch=b, flops=10**13, efficiency=1)
for t in 2, 4, 8:
    rows = stages(None, layers=l, hidden=h, heads=a, sequence=s, vocabulary=V, microbatch=b, flops=10**13, efficiency=1,
                  width=t, width_bandwidth=10**11)
    ring = 2 * (t - 1) * (2 * b * s * h / t) / 100  # ns: steps, bytes, 100 bytes a ns
    sums = {"F": [1] + [2] * l + [0], "I": [0] + [2] * l + [1], "W": [0] * (l + 2)}
    for key, count in sums.items():
        for row, one, n in zip(rows, whole, count):
            assert abs(row[key] - one[key] / t - n * ring) <= 2, (t, key, row[key], one[key], n * ring)
    for row in rows[1:-1]:
        assert row["act"] == s * b * h * (10 + 24 / t + 5 * a * s / (h * t)), t
        divided = [3 * h * h + 3 * h, h * h, 4 * h * h + 4 * h, 4 * h * h]  # Q, K, V; out; two of the perceptron
        assert row["weight"] == 2 * (sum(divided) // t + h + h + 4 * h), t
    assert rows[0]["weight"] == 2 * (V // t + s) * h and rows[-1]["weight"] == 2 * (V // t * h + 2 * h)
    assert all(row["boundary"] == 2 * b * s * h for row in rows[:-1])

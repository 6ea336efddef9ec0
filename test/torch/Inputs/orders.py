# SPDX-License-Identifier: MIT
# The orders of PyTorch's schedule classes against those of pipec, op by op, over a grid of ranks P,
# microbatches M and stages per rank V; and its passes that add UNSHARD and REDUCE_GRAD.
#
#   orders.py PIPEC STDLIB      needs torch; starts no process group
#
# Classes that have their order as a list are asked for it. The two that have their own loop are played on a
# stage that writes down what it is told: Schedule1F1B's list is not what it runs.
import subprocess
import sys
from unittest import mock

import torch
from torch.distributed.pipelining import schedules as S
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

pipec, stdlib = sys.argv[1:]
WAITS = hasattr(S, "WAIT_SEND_F")


def call(name, *options, **params):
    defines = ["-D%s=%d" % p for p in params.items()]
    done = subprocess.run([pipec, "%s/%s.pipe" % (stdlib, name), *options, *defines], text=True,
                          capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None, done.stderr


def ours(name, **params):
    out, err = call(name, "--emit=csv", **params)
    return [row.split(",") for row in out.splitlines()] if out else err


def played(cls, P, M):
    rows = []
    for rank in range(P):
        row, stage = [], mock.MagicMock()
        stage.num_stages, stage.group_size, stage.group_rank, stage.stage_index = P, P, rank, rank
        stage.is_last = rank == P - 1
        for ops in ("get_fwd_recv_ops", "get_fwd_send_ops", "get_bwd_recv_ops", "get_bwd_send_ops"):
            getattr(stage, ops).return_value = []
        stage.forward_one_chunk.side_effect = lambda mb, *_, row=row, rank=rank, **__: row.append("%dF%d" % (rank, mb))
        stage.backward_one_chunk.side_effect = lambda mb, *_, row=row, rank=rank, **__: row.append("%dB%d" % (rank, mb))
        schedule = cls(stage, M)
        schedule._initialize_stage = lambda *_: None
        schedule._step_microbatches([()] * M, [{}] * M)
        rows.append(row)
    return rows


def listed(name, P, M, V):
    return [[str(a) for a in row if a is not None] for row in get_schedule_ops(name, P, M, V)]


def compare(name, theirs, own):
    global equal
    assert len(theirs) == len(own), (name, own)
    for rank, (a, b) in enumerate(zip(theirs, own)):
        if a != b:
            k = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            sys.exit("%s, rank %d, op %d:\n  PyTorch: %s\n  pipec:   %s" % (name, rank, k, a[k:k + 8], b[k:k + 8]))
    equal[name.split()[0]] = equal.get(name.split()[0], 0) + 1


def theirs(cls, *args):
    try:
        return cls(*args)
    except ValueError as e:
        return str(e)


def passes(name, **params):
    """UNSHARD, RESHARD and REDUCE_GRAD, and every transfer, as PyTorch's own passes put them."""
    M, compute = params["M"], ours(name, **params)
    for most in (2, 3, 4):
        out, err = call(name, "--emit=comms-csv", "--torch-unshard=%d" % most, *["--torch-waits"] * WAITS, **params)
        if not out:
            sys.exit("%s: %s" % (name, err))
        rows = [row.split(",") for row in out.splitlines()]
        for rank, (row, ops) in enumerate(zip(rows, compute)):
            want = S._add_reduce_grad(S._add_unshard_reshard([S._Action.from_str(o) for o in ops], most), M)
            got = [c for c in row if not any(w in c for w in ("SEND", "RECV"))]
            want = [str(a) for a in want]
            # The order in which stages that go at one time are freed is that of a Python set in some versions.
            runs = lambda cells: [sorted(c) if "RESHARD" in c[0] else c for c in split(cells)]
            compare("passes %s %s most %d rank %d" % (name, params, most, rank), [runs(want)], [runs(got)])
        actions = {r: [S._Action.from_str(c) for c in row] for r, row in enumerate(rows)}
        place = {a.stage_index: r for r, row in actions.items() for a in row if a.stage_index >= 0}
        lowered = {r: [S._Action.from_str(o) for o in row] for r, row in enumerate(compute)}
        full = S._add_send_recv(lowered, place.__getitem__, len(place))
        for r in actions:
            transfers = lambda row: sorted(str(a) for a in row if "SEND" in str(a) or "RECV" in str(a))
            assert transfers(full[r]) == [c for c in transfers(actions[r]) if "WAIT" not in c], (name, params, r)
        if WAITS:
            S._validate_send_waits(actions)


def split(cells):
    """Runs of RESHARD together, everything else alone."""
    runs = []
    for c in cells:
        if runs and "RESHARD" in c and "RESHARD" in runs[-1][0]:
            runs[-1].append(c)
        else:
            runs.append([c])
    return runs


equal = {}
for P in (2, 3, 4, 8):
    for M in (1, 2, 3, 4, 6, 8, 12, 16, 24):
        t = theirs(played, S.ScheduleGPipe, P, M)
        if isinstance(t, list):
            compare("gpipe P=%d M=%d" % (P, M), t, ours("gpipe", P=P, M=M))
        else:
            assert M < P, t  # older versions want M >= P here, too
        t = theirs(played, S.Schedule1F1B, P, M)
        if M >= P:
            compare("1f1b P=%d M=%d" % (P, M), t, ours("1f1b", P=P, M=M))
        else:
            assert "microbatches" in t, t
        for V in (2, 3, 4):
            at = "P=%d M=%d V=%d" % (P, M, V)
            compare("looped_bfs " + at, listed("LoopedBFS", P, M, V), ours("looped_bfs", P=P, M=M, V=V))
            rounds = max(1, M // P)
            for theirs_name, name in (("Interleaved1F1B", "interleaved_g"), ("InterleavedZeroBubble", "interleaved_zb")):
                t = theirs(listed, theirs_name, P, M, V)
                if M % rounds:
                    assert "rounds" in t, t
                elif name == "interleaved_g":
                    compare(name + " " + at, t, ours(name, P=P, M=M, V=V, G=M // rounds))
                    if M % P == 0:
                        compare("interleaved " + at, t, ours("interleaved", P=P, M=M, V=V))
                else:
                    compare(name + " " + at, t, ours(name, P=P, M=M, V=V, G=M // rounds))
        got = ours("zb_v", P=P, M=M)
        if isinstance(got, list):
            compare("zb_v P=%d M=%d" % (P, M), listed("ZBVZeroBubble", P, M, 2), got)
        else:
            assert "[requires]" in got, got
        t = theirs(listed, "DualPipeV", P, M, 2)
        got = ours("dualpipev", P=P, M=M)
        if isinstance(t, str):
            assert M < 2 * P, t
        elif isinstance(got, list):
            compare("dualpipev P=%d M=%d" % (P, M), t, got)
        else:
            assert "[requires]" in got, got
for name, params in (("1f1b", {}), ("gpipe", {}), ("looped_bfs", {"V": 4}), ("interleaved", {"V": 4}),
                     ("interleaved_zb", {"V": 3}), ("zb_v", {}), ("dualpipev", {}), ("zb_h1", {})):
    for P, M in ((2, 4), (4, 8)) if hasattr(S, "_add_reduce_grad") else ():  # older versions have no REDUCE_GRAD
        passes(name, P=P, M=M, **params)
print("PyTorch %s" % torch.__version__)
print("equal: " + ", ".join("%s %d" % e for e in sorted(equal.items())))

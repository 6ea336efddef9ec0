# SPDX-License-Identifier: MIT
"""Seconds of the processor that pipec needs for a schedule, beside the generators of those who published it.

usage: peers.py PIPEC STDLIB [P M]   PIPE_PEERS: a directory with checkouts of `DeepSpeed`, `alpa`, `DualPipe` and
                                     `zero-bubble-pipeline-parallelism`; what is not there is left out. With it, a
                                     PyTorch that this Python can import is a peer, too. `alpa` needs numpy.

Theirs run as they are, in this Python, without the packages that they import and do not use for the order: of DeepSpeed
the instructions of all stages, which have no proof; of Alpa the clock table of 1F1B; of PyTorch the interleaved order,
its lowering and its simulation; of ZB-1p and V-ZB what makes the order of all ranks; of DualPipe the calls of its step
on every rank, with nothing behind them.
Ours is the order alone, to the end of `expand`, and the whole compiler, from the start of its process to the end of
the C file. Costs are 1, of a transfer 0, for
both. Best of three each, taken in turn.
"""
import contextlib
import importlib
import io
import os
import re
import resource
import subprocess
import sys
import types


class Anything(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "Module":
            return object
        return type(name, (), {}) if name[0].isupper() else Anything(name)

    def __call__(self, *args, **kw):
        return args[0] if len(args) == 1 and callable(args[0]) else None


def stub(*names):
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = Anything(name)


def folder(name, path):
    """A package of the files in path, without its __init__."""
    parts = name.split(".")
    for k in range(1, len(parts) + 1):
        module = types.ModuleType(".".join(parts[:k]))
        module.__path__ = [path] if k == len(parts) else []
        sys.modules[module.__name__] = module


def zero_bubble(root):
    name = "megatron.core.pipeline_parallel.zerobubble.scheduler"
    path = os.path.join(root, *name.split("."))
    stub("torch", "pulp")
    folder(name, path)
    graph, zb, zbv = (importlib.import_module(name + "." + m) for m in ("graph", "zb", "zbv"))

    def zb_1p(P, M):
        config = graph.GraphConfig(cost_f=[1.0] * P, cost_b=[1.0] * P, cost_w=[1.0] * P, mem_f=[1] * P, mem_b=[0] * P,
                                   mem_w=[-1] * P, max_mem=[P] * P, n_stages=P, n_micro=M)
        return len(zb.initial_solution(zb.Graph.build_graph(P, M, config), False)[1])

    def v_zb(P, M):
        config = graph.GraphConfig(cost_f=[1.0] * P, cost_b=[1.0] * P, cost_w=[1.0] * P, mem_f=[1] * P, mem_b=[0] * P,
                                   mem_w=[-1] * P, max_chunks=2, n_stages=P, n_micro=M)
        return sum(map(len, zbv.PipelineGraph(P, M, 1, 1, 1, 0, 1, 0, -1, 2 * P).create_schedule(config)))

    return [("zb_1p", 64, 512, zb_1p), ("v_zb", 64, 512, v_zb)]


def dualpipe(root):
    stub("torch", "torch.nn", "torch.distributed", "torch.autograd")
    folder("dualpipe", os.path.join(root, "dualpipe"))
    stub("dualpipe.comm", "dualpipe.utils")
    module = importlib.import_module("dualpipe.dualpipe")

    class Quiet:
        def __getattr__(self, name):
            return self

        def __call__(self, *args, **kw):
            return True

    module.comm = module.WeightGradStore = module.dist = Quiet()
    module.torch = Anything("torch")
    module.scatter = lambda x, n, dim: x
    calls = [0]

    class Order(module.DualPipe):
        def __init__(self, rank, P):
            half = P // 2
            self.rank, self.num_ranks = rank, P
            self.is_first_rank, self.is_last_rank = rank == 0, rank == P - 1
            self.is_in_second_half, self.is_middle_rank = rank >= half, rank in (half - 1, half)
            self.forward_only = False
            self.batch_dim, self.group = 0, None

    def count(*args, **kw):
        calls[0] += 1

    for name in dir(module.DualPipe):
        if name.endswith(("_chunk", "_forward", "_backward")) or name in ("_commit_and_wait_comm", "_reset_states"):
            setattr(Order, name, count)

    def order(P, M):
        calls[0] = 0
        for rank in range(P):
            o = Order(rank, P)
            o.loss_chunks = []
            o.step(*(([],) if rank in (0, P - 1) else ()), num_chunks=M, criterion=count, labels=[], return_outputs=False)
        return calls[0]

    return [("dualpipe", 64, 1024, order)]


def deepspeed(root):
    folder("deepspeed.runtime.pipe", os.path.join(root, "deepspeed", "runtime", "pipe"))
    stub("deepspeed.runtime.utils")
    module = importlib.import_module("deepspeed.runtime.pipe.schedule")

    def order(P, M):
        return sum(len(step) for stage in range(P) for step in module.TrainSchedule(M, P, stage).steps())

    return [("1f1b", 64, 512, order)]


def alpa(root):
    folder("alpa.pipeline_parallel", os.path.join(root, "alpa", "pipeline_parallel"))
    stub("alpa.util", "alpa.pipeline_parallel.computation")
    module = importlib.import_module("alpa.pipeline_parallel.schedules")

    def order(P, M):
        made = module.PipeDreamFlush(dependency=None, meshes=range(P), apply_grad_placement={}, num_batch=M)
        return sum(task is not None for clock in made.schedules for task in clock)

    return [("1f1b", 64, 512, order)]


def pytorch(root):
    module = importlib.import_module("torch.distributed.pipelining.schedules")

    def order(P, M, V=2):
        def rank_of(stage):
            return stage % P

        of = types.SimpleNamespace(n_local_stages=V, pp_group_size=P, _n_microbatches=M, microbatches_per_round=P)
        ops = {r: [a for a in module.ScheduleInterleaved1F1B._calculate_single_rank_operations(of, r) if a is not None]
               for r in range(P)}
        lowered = module._add_send_recv(ops, rank_of, P * V)
        module._simulate_comms_compute(lowered, rank_of, P * V)
        return sum(map(len, lowered.values()))

    return [("interleaved", 64, 512, order)]


def missing(name, root):
    """What the peer in root lacks; None: it is there."""
    try:
        if name == "PyTorch":
            importlib.import_module("torch.distributed.pipelining.schedules")
        elif not os.path.isdir(root):
            return "no checkout"
        if name == "alpa":
            importlib.import_module("numpy")
    except ImportError as e:
        return str(e)
    return None


def used():
    """By this process and those that it has waited for."""
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def measure(call):
    at = used()
    with contextlib.redirect_stdout(io.StringIO()):
        size = call()
    return used() - at, size


PEERS = (("DeepSpeed", deepspeed), ("alpa", alpa), ("PyTorch", pytorch),
         ("zero-bubble-pipeline-parallelism", zero_bubble), ("DualPipe", dualpipe))


def main(pipec, lib, P=None, M=None):
    root = os.environ.get("PIPE_PEERS", "")
    if not root:
        print("no peers: PIPE_PEERS names no directory with their checkouts")
        return
    found = []
    for peer, use in PEERS:  # PyTorch before those for whom there is none
        why = missing(peer, os.path.join(root, peer))
        if why:
            print("%s: left out: %s" % (peer, why))
        else:
            found += [(peer, *schedule) for schedule in use(os.path.join(root, peer))]
    for peer, name, ranks, mbs, theirs_of in found:
        ranks, mbs = int(P or ranks), int(M or mbs)
        command = [pipec, "-I", lib, "--time-passes", "--emit=c", "-o", os.devnull, "-DP=%d" % ranks, "-DM=%d" % mbs,
                   os.path.join(lib, name + ".pipe")]
        order, ours, theirs = [], [], []
        for _ in range(3):
            t, said = measure(lambda: subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True).stderr)
            ours.append(t)
            order.append(sum(float(ms) for _, ms in re.findall(r"^(parse|resolve|expand) +([0-9.]+) ms", said, re.M)) / 1e3)
            t, entries = measure(lambda: theirs_of(ranks, mbs))
            theirs.append(t)
        print("%-11s P=%-3d M=%-5d %s %.3f s (%d entries); ours: the order %.3f s, ratio %.2f, proofs and C too %.3f s, ratio %.2f"
              % (name, ranks, mbs, peer, min(theirs), entries, min(order), min(order) / min(theirs), min(ours),
                 min(ours) / min(theirs)), flush=True)


main(*sys.argv[1:])

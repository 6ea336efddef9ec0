# SPDX-License-Identifier: MIT
"""Trains nn.Modules on the C engine: each rank of the schedule is a thread of this process, a few
streams of a CUDA device, or a process of torch.distributed."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import re
import statistics
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import byref, c_uint64, c_void_p
from typing import Any

import torch
from torch.distributed import is_initialized
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.utils.checkpoint import checkpoint

from . import _runtime as rt
from ._devices import Device, Host
from ._processes import Processes
from ._runtime import RunError
from ._schedule import Schedule
from ._stages import (
    Known,
    MakeOptimizer,
    Stage,
    Stash,
    Tensors,
    alone,
    as_tuple,
    buffers_of,
    check_ties,
    devices_of,
    edges,
    measure,
    offsets,
    shared_parameters,
)

__all__ = ["Run", "RunError", "cut", "profile"]

Tensor = torch.Tensor
# PrDtype, in its order
DTYPES = (
    "uint8 bool int8 float8_e4m3fn float8_e5m2 int16 uint16 float16 bfloat16 int32 uint32 float32"
    " int64 uint64 float64 complex64"
).split()

_NOT_MPI = (
    ": under mpirun 'dist' has one process per rank, after\n"
    'torch.distributed.init_process_group("gloo", init_method="tcp://HOST:PORT", '
    'rank=int(os.environ["OMPI_COMM_WORLD_RANK"]), '
    'world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]))\n'
    "HOST is the host of rank 0, PORT a free port there"
)


def _check_modules_can(schedule: Schedule) -> None:
    """Raises ValueError for a schedule with slices, with edges beside the chain of stages, or with
    side ops."""
    of = schedule.json
    if of["slices"] > 1:
        raise ValueError(
            f"the schedule cuts microbatches into {of['slices']} slices, and modules process whole "
            "microbatches"
        )
    for edge in of.get("edges", ()):
        if edge["skip"]:
            raise ValueError(
                f"the schedule connects stages {edge['from']} and {edge['to']} by an edge, and "
                "modules are a chain"
            )
    if "sides" in of:
        raise ValueError(
            f"the schedule has the side op {of['sides'][0]['side']}, and modules have none"
        )


def _close(run: c_void_p, place: Host, processes: Processes | None, used: list[Any]) -> None:
    if processes and run and place.lib.pr_error(run):
        processes.abort()
    if run:
        with place.current():
            place.lib.pr_close(run)
    if processes:
        processes.close()


def _keep_thread(_: int, begins: int) -> None:
    """Keeps the Python state of a thread from its first callback to its last. Otherwise Python
    makes the state for each callback, in 40 us, and threading.local of modules is lost."""
    if begins:
        ctypes.pythonapi.PyGILState_Ensure()
    else:
        ctypes.pythonapi.PyGILState_Release(0)  # PyGILState_LOCKED, as Ensure returned


class Run:
    """Trains modules in the order of a schedule.

    schedule:  a pipec.Schedule
    stages:    the modules of all stages, in order. Each returns a tensor or a tuple of tensors: the
               arguments of the next stage. Run copies the modules. The schedule must tie stages
               that share parameters
    loss_fn:   (output, target) -> the mean loss of one microbatch
    example:   an input of one microbatch, or a tuple of inputs; Run measures the tensors between
               stages with it
    optimizer: module -> its optimizer, such as lambda m: torch.optim.AdamW(m.parameters())
    deadline:  seconds after which a step fails; 0: from the predicted time of a step
    engine:    "threads": each rank is a thread of this process. "dist": rank r is the process of
               rank r of a process group. "cuda": the stages of this process are on a CUDA device,
               which has all ranks, or rank r if torch.distributed is initialized
    group:     of a process per rank: a gloo group that nothing else uses during the run, or after a
               failed run; None: Run makes a group of all processes

    An update applies the mean gradient of its microbatches, as the schedule assigns them; a
    parameter that none of them reaches has gradient 0, not None. If the schedule gives a backward
    other weights than its forward, the backward uses those for every weight that autograd saves
    unchanged; values that the forward derives from weights (weight_norm) stay as they were. Raises
    RunError if the engine refuses the schedule or the sizes, and ValueError if the modules do not
    fit the schedule. End a run with `with` or `close()`.

    With a process per rank all processes must make the same calls. A stage of another process may
    be None, unless it is tied to a stage of this one; `example` may be None without the first
    stage. A failure in one process raises RunError in all. The results of "dist" equal those of
    threads bit for bit.
    """

    def __init__(
        self,
        schedule: Schedule,
        stages: Sequence[torch.nn.Module | None],
        loss_fn: Callable[[Any, Any], Tensor],
        example: Tensors | None,
        optimizer: MakeOptimizer,
        *,
        deadline: float = 0,
        engine: str = "threads",
        group: torch.distributed.ProcessGroup | None = None,
    ) -> None:
        if engine not in ("threads", "dist", "cuda"):
            why = _NOT_MPI if engine == "mpi" else ""
            raise ValueError(f"engine is 'threads', 'dist' or 'cuda', not {engine!r}{why}")
        _check_modules_can(schedule)
        rows = schedule.json["stages"]
        count = 1 + max(row["model"] for row in rows)
        if len(stages) != count:
            raise ValueError(f"the schedule is for {count} stages, not {len(stages)}")
        self._place = Device() if engine == "cuda" else Host()
        apart = engine == "dist" or (engine == "cuda" and (group or is_initialized()))
        self._processes = Processes(group, schedule) if apart else None
        self._run, self._pid = c_void_p(), os.getpid()
        kept: list[Any] = [schedule]  # objects that must outlive pr_close
        self._end = weakref.finalize(self, _close, self._run, self._place, self._processes, kept)
        if self._processes and self._processes.size != schedule.json["ranks"]:
            raise ValueError(
                f"the schedule is for {schedule.json['ranks']} ranks, and the group has "
                f"{self._processes.size}"
            )
        together = self._processes.together if self._processes else alone
        self.schedule, self._loss_fn = schedule, loss_fn
        self._microbatches = schedule.json["microbatches"]
        self._rows = [(row["rank"], row["model"]) for row in rows]
        self._proved = {row["model"]: row for row in rows}
        ops = [op for rank in schedule.json["rank"] for op in rank["instr"]]
        self._versions = any("version" in op for op in ops)
        self._trains = not schedule.json["forward"]
        splits = any(re.fullmatch(r"\d+I\d+", op["op"]) for op in ops)
        self._stage: dict[tuple[int, int], Stage] = {}
        found = together(lambda: self._take(stages, optimizer, rows))
        self._known = [next(of[i] for of in found if i in of) for i in range(count)]
        for row in rows:  # replicas and tied stages must begin with equal weights
            own, tied = found[row["rank"] if self._processes else 0][row["model"]], row.get(
                "tied_with"
            )
            if own != self._known[row["model"]]:
                raise ValueError(f"replicas of stage {row['model']} begin with other weights")
            if tied is not None and own.shared != self._known[tied].shared:
                raise ValueError(
                    f"what stages {tied} and {row['model']} share begins with other weights"
                )
        mine = {model for _, model in self._stage}
        self._first, self._last = 0 in mine, count - 1 in mine
        measured = [stage if i in mine else None for i, stage in enumerate(stages)]
        self._sizes_of = measure(measured, example, self._place, splits, together)
        recomputes = any(re.fullmatch(r"\d+R\d+", op["op"]) for op in ops)
        if recomputes and any(size.draws for size in self._sizes_of):
            raise ValueError(
                "the schedule recomputes forwards, but a stage draws random numbers, such as "
                "dropout: its second forward would differ"
            )
        self._stash: dict[tuple[int, int, int], Stash] = {}
        self._slot: dict[tuple[int, int], list[Tensor]] = {}
        self._error: BaseException | None = None
        self._turn = threading.Lock()  # one step at a time
        self._said: dict[int, Any] = (
            {}
        )  # by thread; threading.local is lost between two calls from C
        self._model = rt.Model(
            nstage=count,
            nslice=1,
            elem=4 if all(known.dtype == torch.float32 for known in self._known) else 0,
            holds_stash=1,
            sizes=self._guard(rt.SIZES, self._sizes),
            init=self._guard(rt.INIT, self._init),
            forward=self._guard(rt.OP, self._forward),
            backward=self._guard(rt.OP, self._backward),
            backward_input=self._guard(rt.OP, self._input),
            backward_weight=self._guard(rt.OP, self._weight),
            update=self._guard(rt.OP, self._update),
            reduce=self._guard(rt.REDUCE, self._reduce),
            tie=self._guard(rt.TIE, lambda stages, *sum: self._reduce(stages[0], *sum)),
            lr=rt.LR(self._rate),
            moment=rt.MOMENT(self._moment),
            tensor=rt.TENSOR(self._named),
            why=rt.WHY(self._why),
            thread=rt.THREAD(_keep_thread),
        )
        summed = {
            self._known[row["model"]].dtype
            for row in rows
            if "tied_with" in row or sum(row["model"] == other["model"] for other in rows) > 1
        }
        met = self._processes.meet() if self._processes else None
        carry = self._guard(rt.CARRY, self._carry, cause=False)
        options = rt.Options(deadline_s=deadline)
        options.engine, of_engine = self._place.engine(met, carry, self._model.why, summed)
        if of_engine:
            kept.append(of_engine)
            options.engine_options = ctypes.addressof(of_engine)
        self._place.settle()
        self._do("open", byref(self._run), schedule.program, byref(self._model), byref(options))

    def _take(
        self,
        stages: Sequence[torch.nn.Module | None],
        optimizer: MakeOptimizer,
        rows: list[dict[str, Any]],
    ) -> dict[int, Known]:
        """Copies the stages of this process; returns the Known of each."""
        loss_fn = self._loss_fn
        if isinstance(loss_fn, torch.nn.Module) and any(
            p.requires_grad for p in loss_fn.parameters()
        ):
            raise ValueError("the loss function has parameters: put it into the last stage")
        for i, stage in enumerate(stages):
            for name, p in stage.named_parameters() if stage is not None else ():
                if p._backward_hooks or p._post_accumulate_grad_hooks:
                    raise ValueError(f"'{name}' of stage {i} has hooks, which its copy would lack")
        shared = shared_parameters(stages)
        check_ties(stages, shared, {row["model"]: row.get("tied_with") for row in rows})
        here = {
            (rank, model): stages[model]
            for rank, model in self._rows
            if not self._processes or rank == self._processes.rank
        }
        for (rank, model), stage in here.items():
            if stage is None:
                raise ValueError(
                    f"stage {model} is None, and the schedule places it on rank {rank}"
                )
        self._place.open(devices_of(here.values()))
        for (rank, model), stage in here.items():
            self._stage[rank, model] = Stage(stage, optimizer, shared[model], self._place)
        rates = {float(g["lr"]) for o in self.optimizers for g in o.param_groups}
        if self.schedule.json.get("formulas") and len(rates) > 1:
            raise ValueError(
                f"formulas of the schedule take one learning rate, not {sorted(rates)}"
            )
        return {model: own.known() for (_, model), own in self._stage.items()}

    # What users call

    def step(self, x: Tensors | None, target: Tensors | None) -> float:
        """Executes one step on a batch and returns the mean loss. The first dimension of each
        tensor is cut into microbatches. In a process without the first stage x may be None; without
        the last stage target may be None."""
        with self._turn:
            return self._step(x, target)

    def _cut(self, what: str, batch: Tensors | None, used: bool) -> Sequence[Any]:
        """The microbatches of a batch, if a stage of this process uses it; else ()."""
        if not used:
            return ()
        if batch is None:
            raise ValueError(f"no {what} in a process that takes it")
        if isinstance(batch, tuple):
            return list(zip(*(self._cut(what, one, used) for one in batch)))
        if batch.device != self._place.device:
            raise ValueError(f"{what} is on {batch.device}, and the run on {self._place.device}")
        parts = batch.chunk(self._microbatches)
        rows = {len(p) for p in parts}
        if len(parts) != self._microbatches or len(rows) != 1 or rows == {0}:
            raise ValueError(
                f"{what} of {len(batch)} rows: not {self._microbatches} equal microbatches"
            )
        return parts

    def _step(self, x: Tensors | None, target: Tensors | None) -> float:
        kind = self._place.device.type
        self._autocast = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        if self._versions and self._autocast[1]:
            raise ValueError("under autocast a backward cannot have other weights than its forward")
        self._inputs = self._cut("input", x, self._first)
        self._targets = self._cut("target", target, self._last)
        self._place.begin()
        self._do("steps", self._open, 1)
        return float(self._lib.pr_loss(self._open))

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers of the stages of this process, with replicas; for learning-rate
        schedulers."""
        return [s.optimizer for s in self._stage.values() if s.optimizer is not None]

    def state_dict(self, stage: int) -> dict[str, Tensor]:
        """Copies of the newest weights and the buffers of a stage of this process, for
        `load_state_dict`."""
        ranks = [rank for rank, model in self._rows if model == stage]
        if not ranks:
            raise IndexError(f"there is no stage {stage}")
        row = next(
            (i for i, of in enumerate(self._rows) if of[1] == stage and of in self._stage), None
        )
        if row is None:
            raise ValueError(f"stage {stage} is in the processes of ranks {ranks}")
        own = self._stage[self._rows[row]]
        at = self._lib.pr_weight(self._open, row)
        if own.size and not at:  # perhaps in the middle of an update
            raise RunError(
                "the run has failed: " + self._lib.pr_error(self._run).decode("utf-8", "replace")
            )
        newest = dict(zip(own.parameters, own.views(at))) if own.size else {}
        return {
            name: newest.get(t, t).detach().clone()
            for name, t in own.module.state_dict(keep_vars=True).items()
        }

    @property
    def bytes(self) -> list[int]:
        """Bytes of each rank: memory of the engine, plus stashes."""
        return [self._lib.pr_bytes(self._open, r) for r in range(self.schedule.json["ranks"])]

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def save(self, folder: str | os.PathLike[str], keep: int = 0) -> None:
        """Writes a checkpoint: a folder of safetensors files. Weights have the names of
        torch.nn.Sequential(*stages); optimizer states append their own names. keep: checkpoints
        to keep; 0: all. Raises ValueError for modules with buffers, which a checkpoint cannot
        store."""
        for _, own in self._stage.items():
            kept = [
                name
                for name, t in own.module.state_dict(keep_vars=True).items()
                if not isinstance(t, torch.nn.Parameter)
            ]
            if kept:
                raise ValueError(f"a checkpoint has no buffers, and a stage has '{min(kept)}'")
        self._do("checkpoint", self._open, os.fsencode(folder), keep)

    def resume(self, folder: str | os.PathLike[str]) -> int:
        """Resumes from the latest checkpoint of a folder; call it before the first step. Returns
        the steps done; 0: there is no checkpoint. The schedule and its ranks may differ."""
        steps = c_uint64()
        self._do("resume", self._open, os.fsencode(folder), byref(steps))
        return steps.value

    def close(self) -> None:
        """Ends the threads and frees the memory of the engine; optimizers keep their state."""
        try:
            for own in self._stage.values() if self._end.alive else ():
                own.leave()
            self._place.settle()
        finally:
            self._end()

    @property
    def _open(self) -> c_void_p:
        if not self._end.alive:
            raise ValueError("the run is closed")
        if self._pid != os.getpid():
            raise ValueError("the run belongs to the parent process and cannot be used after fork")
        return self._run

    # Errors

    def _guard(self, kind: Any, call: Callable[..., None], cause: bool = True) -> Any:
        """Makes a C callback that fails if the method raises. cause: keep the exception as the
        cause of RunError."""

        def guarded(_: int, *arguments: Any) -> int:
            try:
                with self._place.on():
                    call(*arguments)
                return 0
            except BaseException as e:
                self._error = self._error or (e if cause else None)
                said = ctypes.create_string_buffer(
                    f"{type(e).__name__}: {e}".encode("utf-8", "replace")
                )
                self._said[threading.get_ident()] = said
                return 1

        return kind(guarded)

    def _why(self, _: int) -> int | None:
        text = self._said.get(threading.get_ident())
        return None if text is None else ctypes.addressof(text)

    @property
    def _lib(self) -> ctypes.CDLL:
        return self._place.lib

    def _do(self, call: str, *arguments: Any) -> None:
        """Calls pr_<call>, which returns a PrStatus."""
        with self._place.current():
            status = getattr(self._lib, "pr_" + call)(*arguments)
        if status:
            raise RunError(
                self._lib.pr_error(self._run).decode("utf-8", "replace")
            ) from self._error

    # What the engine calls, on the threads of the ranks

    def _of(self, stage: int) -> Stage:
        """The Stage of a stage of the model that this process has."""
        return next(own for (_, model), own in self._stage.items() if model == stage)

    def _sizes(self, stage: int, out: Any) -> None:
        own = self._known[stage]
        size, last = self._sizes_of[stage], stage + 1 == len(self._sizes_of)
        proved = self._proved[stage]  # of stages cut from layers: the sums of the layers, a bound
        out[0].act = max(size.act, proved.get("act", 0))
        out[0].gout = max(size.gout, proved.get("gout", 0))
        out[0].work = proved.get("work", 0)  # layers that recompute: PyTorch allocates it
        out[0].boundary = 0 if last else size.boundary
        out[0].weight = out[0].grad = own.bytes
        out[0].opt, out[0].tied = len(own.moments) * own.bytes, own.tied

    def _init(self, stage: int, weight: int, _: int) -> None:
        own = self._of(stage)
        for view, p in zip(own.views(weight), own.parameters):
            view.copy_(p.detach())

    def _between(self, stage: int, address: int) -> list[Tensor]:
        """The outputs of a stage, or their gradients, as tensors over a slot."""
        found = self._slot.get((stage, address))
        if found is None:
            like = self._sizes_of[stage].output
            found = [
                self._place.tensor(address + at, t.dtype, t.shape)
                for t, at in zip(like, offsets(like)[0])
            ]
            self._slot[stage, address] = found
        return found

    def _forward(self, pointer: Any) -> None:
        call = pointer[0]
        if not call.nx:
            x = [t.detach() for t in as_tuple(self._inputs[call.mb])]
        else:
            like = self._sizes_of[call.stage - 1].output
            slots = self._between(call.stage - 1, call.x)
            x = [t.detach().requires_grad_(k.requires_grad) for t, k in zip(slots, like)]
        keeps = self._trains and not call.recomputed
        with torch.set_grad_enabled(keeps):
            own = self._stage[call.rank, call.stage]
            before = buffers_of(own.module) if call.recomputed else []
            with self._cast():
                stash, output = self._call(own, call, x)
            for buffers, old in before:  # R, not F, updates buffers
                buffers.update(old)
            y = as_tuple(output)
            if not call.ny:
                with self._cast():
                    y = (self._loss_fn(output, self._targets[call.mb]),)
                self._place.put_loss(call, y[0])
                stash.one = [torch.ones_like(t) for t in y if t.requires_grad]
        if call.ny:
            self._leave(call, y, keeps)
        if keeps:
            stash.y = edges(y)
            self._stash[call.rank, call.stage, call.mb] = stash

    def _leave(self, call: rt.Call, y: tuple[Tensor, ...], keeps: bool) -> None:
        """Copies the outputs to their slot; they must match those of the example."""

        def kinds(of: tuple[Tensor, ...]) -> list[Any]:
            return [(t.dtype, t.shape, keeps and t.requires_grad) for t in of]

        like = self._sizes_of[call.stage].output
        if kinds(y) != kinds(like):  # copy_ would convert silently
            raise ValueError(
                "a stage returns (type, shape, whether it has a gradient) "
                f"{kinds(y)}, and of the example {kinds(like)}"
            )
        for slot, t in zip(self._between(call.stage, call.y), y):
            slot.copy_(t.detach())

    def _cast(self) -> contextlib.AbstractContextManager[Any]:
        """The autocast state of the thread that called `step`."""
        dtype, on = self._autocast
        return torch.autocast(self._place.device.type, dtype) if on else contextlib.nullcontext()

    def _call(self, own: Stage, call: rt.Call, x: list[Tensor]) -> tuple[Stash, Any]:
        """Runs the forward of a stage. If a backward may read other weights, autograd saves weights
        as offsets."""
        module = own.of(call)
        stash = Stash(x, module)
        if not self._versions:
            return stash, module(*[t.clone() for t in x])
        lo, hi = call.weight, call.weight + own.size * own.dtype.itemsize

        def pack(t: Tensor) -> Any:
            at = t.data_ptr()
            return (at - lo, t.shape, t.stride()) if lo <= at < hi else t.detach()

        def unpack(kept: Any) -> Tensor:
            if isinstance(kept, Tensor):
                return kept
            at, shape, stride = kept
            return own.flat(stash.weight).as_strided(shape, stride, at // own.dtype.itemsize)

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            # clones: the slot belongs to the op only while it runs
            return stash, module(*[t.clone() for t in x])

    def _backward(self, pointer: Any) -> None:
        call = pointer[0]
        stash = self._stash.pop((call.rank, call.stage, call.mb))
        stash.weight = call.weight
        self._stage[call.rank, call.stage].gradients(stash.module, call)
        if stash.y:  # empty: a first stage that is frozen or has no parameters
            torch.autograd.backward(stash.y, self._gradients(call, stash))
        self._give(call, stash)

    def _gradients(self, call: rt.Call, stash: Stash) -> list[Tensor]:
        """The gradients of the differentiable outputs, or of the loss."""
        if not call.ny:
            return stash.one
        like = self._sizes_of[call.stage].output
        return [t for t, k in zip(self._between(call.stage, call.dy), like) if k.requires_grad]

    def _give(self, call: rt.Call, stash: Stash) -> None:
        """Writes the gradients of the inputs to their slot; 0 for unused inputs."""
        if call.nx:
            for slot, x in zip(self._between(call.stage - 1, call.dx), stash.x):
                slot.zero_() if x.grad is None else slot.copy_(x.grad)

    def _input(self, pointer: Any) -> None:
        call = pointer[0]
        stash = self._stash[call.rank, call.stage, call.mb]
        stash.weight = call.weight
        dy = [t.clone() for t in self._gradients(call, stash)]
        if not stash.wanted:  # no input needs a gradient: W does everything
            stash.rest = dy
        else:
            parameters = stash.module.parameters()
            try:
                _, stash.rest = stage_backward_input(stash.y, dy, stash.wanted, parameters)
            except RuntimeError as e:  # in place of the exception that a backward raises
                raise e.__cause__ or e
        self._give(call, stash)

    def _weight(self, pointer: Any) -> None:
        call = pointer[0]
        stash = self._stash.pop((call.rank, call.stage, call.mb))
        self._stage[call.rank, call.stage].gradients(stash.module, call)
        if stash.wanted:
            stage_backward_weight(stash.module.parameters(), stash.rest)
        elif stash.y:
            torch.autograd.backward(stash.y, stash.rest)

    def _update(self, pointer: Any) -> None:
        call = pointer[0]
        own = self._stage[call.rank, call.stage]
        if own.optimizer is None:
            return
        gradient = own.flat(call.grad).div_(call.applied)
        if call.weight != call.newest:
            own.flat(call.weight).copy_(own.flat(call.newest))
        for p, view, grad in zip(own.parameters, own.views(call.weight), own.views(call.grad)):
            p.data, p.grad = view, grad if p.requires_grad else None
        own.keep(call)
        rates = [group["lr"] for group in own.optimizer.param_groups]
        for group in own.optimizer.param_groups:
            group["lr"] = group["lr"] * call.rate  # not in place: it may be a tensor
        own.optimizer.step()
        for group, rate in zip(own.optimizer.param_groups, rates):
            group["lr"] = rate
        gradient.zero_()

    def _reduce(self, stage: int, gradients: Any, count: int, size: int) -> None:
        dtype = self._known[stage].dtype
        shape = (size // dtype.itemsize,)
        parts = [self._place.tensor(gradients[i], dtype, shape) for i in range(count)]
        for part in parts[1:]:
            parts[0] += part
        for part in parts[1:]:
            part.copy_(parts[0])

    def _carry(self, messages: Any, count: int) -> None:
        assert self._processes
        self._processes.carry(messages, count)

    def _rate(self, _: int, stage: int, update: int) -> float:
        optimizer = self._of(stage).optimizer
        return float(optimizer.param_groups[0]["lr"]) if optimizer else 0.0

    def _moment(self, _: int, stage: int, which: int) -> int:
        own = self._known[stage]
        for names in ("momentum_buffer", "exp_avg"), ("exp_avg_sq",):
            for name in names:
                if which == 0 and name in own.moments:
                    return own.moments.index(name) * own.bytes
            which -= 1
        return -1

    def _named(self, _: int, stage: int, index: int, out: Any) -> int:
        """PrModel.tensor: tensor `index` of a stage, first of the weights, then of each moment."""
        own = self._known[stage]
        which, number = divmod(index, max(1, len(own.tensors)))
        if which > len(own.moments) or not own.tensors:
            return 1
        name, shape = own.tensors[number]
        ahead = sum(before.numel() for _, before in own.tensors[:number])
        t = out[0]
        t.name = f"{stage}.{name}{'.' + own.moments[which - 1] if which else ''}".encode()[:128]
        t.of = min(which, 1)
        t.dtype = DTYPES.index(str(own.dtype).removeprefix("torch."))
        t.at = max(0, which - 1) * own.bytes + ahead * own.dtype.itemsize
        t.ndim = len(shape)
        t.shape[: len(shape)] = list(shape)
        return 0


def profile(
    stages: Sequence[torch.nn.Module],
    loss_fn: Callable[[Any, Any], Tensor],
    example: Tensors,
    target: Tensors,
    optimizer: MakeOptimizer,
    *,
    repeats: int = 7,
    layers: bool = False,
) -> dict[str, Any]:
    """Measures each stage with one microbatch, for `compile(profile=...)`: the median times of its
    ops in ns, and its sizes in bytes. The stages run one after the other, on this thread, on the
    device of their parameters. There an op is timed until the device has finished it.

    example, target: one microbatch, on the same device
    layers: True: the modules are layers, which pipec.plan, best and compile cut into stages
    """
    devices = devices_of(stages)
    place = Device() if any(device.type == "cuda" for device in devices) else Host()
    place.find(devices)
    entries, shared = [], shared_parameters(stages)
    x = tuple(t.detach() for t in as_tuple(example))
    for number, (stage, size) in enumerate(zip(stages, measure(stages, example, place, True))):
        own = Stage(stage, optimizer, shared[number], place)
        last, took = number + 1 == len(stages), collections.defaultdict(list)
        for _ in range(repeats + 1):  # the first run is discarded
            for split in False, True:
                one = _one_microbatch(
                    own, x, (lambda y: loss_fn(y, target)) if last else None, split
                )
                for op, ns in one.items():
                    took[op].append(ns)
        times = {op: int(statistics.median(ns[1:])) for op, ns in took.items()}
        sizes = {"act": size.act, "gout": size.gout, "boundary": 0 if last else size.boundary}
        sizes |= {"weight": own.bytes, "grad": own.bytes, "opt": len(own.moments) * own.bytes}
        if layers:
            sizes |= {"name": str(number)}
        else:
            sizes |= {"send": 0} | ({"tied": own.tied} if any(shared) else {})
        entries.append(times | {"R": times["F"]} | sizes)
        x = size.output
    return {"pipe_profile": 1, "layers" if layers else "stages": entries}


def _through(layers: Iterable[torch.nn.Module], *x: Any) -> tuple[Any, ...]:
    for layer in layers:
        x = as_tuple(layer(*x))
    return x


class _Chain(torch.nn.Sequential):
    """A Sequential in which a layer may return several tensors: the arguments of the next.

    again: runs of layers, first and last, that keep their inputs only and recompute in the backward
    """

    def __init__(self, *layers: torch.nn.Module, again: Iterable[tuple[int, int]] = ()) -> None:
        super().__init__(*layers)
        self.again = dict(again)

    def forward(self, *x: Any) -> Any:
        layers = iter(enumerate(self))
        for k, layer in layers:
            if k in self.again:
                run = [layer, *(next(layers)[1] for _ in range(k, self.again[k]))]
                x = checkpoint(_through, run, *x, use_reentrant=False)
            else:
                x = _through([layer], *x)
        return x if len(x) > 1 else x[0]


def cut(schedule: Schedule, layers: Sequence[torch.nn.Module]) -> list[torch.nn.Module]:
    """The stages of a schedule that pipec has cut from `profile(layers, ..., layers=True)`."""
    row = r"^# +\d+  \d[-\d]*  +(\d+)  .*?(?:  recomputes (.+))?$"
    rows = re.findall(row, schedule.text or "", re.M)  # of the table of pipec.plan
    ends = [last for last, _ in rows]
    if not ends:  # compiled with the profile
        of = re.search(r"^layers +(\d+) in \d+ stages(?:, cut after (.*))?$", schedule.report, re.M)
        if not of:
            raise ValueError("the schedule has not been cut from a profile of layers")
        ends = [*(of[2].split(", ") if of[2] else ()), int(of[1]) - 1]
    ends = [int(last) + 1 for last in ends]
    if ends[-1] != len(layers):
        raise ValueError(f"the schedule has been cut from {ends[-1]} layers, not {len(layers)}")
    again = [run for _, runs in rows if runs for run in _runs(runs)]
    return [
        _Chain(*layers[begin:end], again=[(a - begin, b - begin) for a, b in again if begin <= a < end])
        for begin, end in zip([0, *ends], ends)
    ]


def _runs(text: str) -> Iterator[tuple[int, int]]:
    """The runs of "0, each of 2 to 4, 6 to 7" as first and last layer: (0, 0), (2, 2), ..., (6, 7)."""
    for each, first, last in re.findall(r"(each of )?(\d+)(?: to (\d+))?", text):
        a, b = int(first), int(last or first)
        yield from ((k, k) for k in range(a, b + 1)) if each else [(a, b)]


def _one_microbatch(
    own: Stage, like: tuple[Tensor, ...], loss: Callable[[Any], Tensor] | None, split: bool
) -> dict[str, int]:
    """Runs the ops of a microbatch and an update; returns ns by op. split: I and W instead of B."""
    x = [t.detach().to(own.place.device).requires_grad_(t.requires_grad) for t in like]
    stash = Stash(x, own.module)

    def now() -> int:
        own.place.finish()
        return time.perf_counter_ns()

    start = now()
    output = own.module(*[t.clone() for t in x])
    y = [t for t in as_tuple(loss(output) if loss else output) if t.requires_grad]
    stash.y = edges(y)
    took = {"F": now() - start}
    dy = [torch.ones_like(t) for t in y]
    start = now()
    if not split or not stash.wanted:
        if stash.y:
            torch.autograd.backward(stash.y, dy)
        took["W" if split else "B"] = now() - start
        took |= {"I": 0} if split else {}
    else:
        _, groups = stage_backward_input(stash.y, dy, stash.wanted, own.module.parameters())
        took["I"] = now() - start
        start = now()
        stage_backward_weight(own.module.parameters(), groups)
        took["W"] = now() - start
    start = now()
    if own.optimizer:
        own.optimizer.step()
        own.optimizer.zero_grad(set_to_none=False)
    took["U"] = now() - start
    return took

# SPDX-License-Identifier: MIT
"""nn.Modules on the C engine: each rank of the schedule is a thread of this process."""

from __future__ import annotations

import collections
import contextlib
import copy
import ctypes
import os
import re
import statistics
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from . import _runtime as rt
from ._schedule import Schedule

__all__ = ["Run", "RunError", "profile"]

Tensor = torch.Tensor
MakeOptimizer = Callable[[torch.nn.Module], torch.optim.Optimizer]
# PrDtype, in its order
_DTYPES = (
    "uint8 bool int8 float8_e4m3fn float8_e5m2 int16 uint16 float16 bfloat16 int32 uint32 float32 int64"
    " uint64 float64 complex64"
).split()


class RunError(RuntimeError):
    """A run has failed. The text names the rank, the op and its line in the schedule; `__cause__`
    is what a module, the loss function or an optimizer has raised, if one has."""


class _Stash:
    """What one microbatch keeps on a stage, from F, or R, to its last backward."""

    def __init__(self, x: Tensor | None, y: Tensor, module: torch.nn.Module) -> None:
        self.x, self.y, self.module = x, y, module
        self.weight = 0  # where the version lies that the backward reads
        self.rest: Any = None  # what W needs of I


def _state(own: _Stage, make: MakeOptimizer) -> tuple[list[str], Tensor | None]:
    """The names of what the optimizer keeps for each parameter, and what it counts its steps with,
    found by one step of another. All of it is 0 at first, so it may lie in the engine's memory."""
    module = copy.deepcopy(own.module)
    for p, given in zip(own.in_order(module), own.parameters):
        p.__dict__.update(given.__dict__)
    optimizer = make(module)
    for group in optimizer.param_groups:  # else it is in the moments from the first step on
        group.update({"weight_decay": 0} if "weight_decay" in group else {})
    for p in module.parameters():
        p.grad = torch.zeros_like(p) if p.requires_grad else None
    optimizer.step()
    names: set[str] = set()
    count = None
    for q, state in optimizer.state.items():
        for name, t in state.items():
            if name == "step":
                count = t
            elif (
                isinstance(t, Tensor)
                and t.shape == q.shape
                and t.dtype == own.dtype
                and not t.any()
            ):
                names.add(name)
            elif t is not None:
                raise ValueError(f"{type(optimizer).__name__} begins with another '{name}' than 0")
    if any(group.get("dampening") for group in optimizer.param_groups):
        raise ValueError("SGD with dampening begins with another moment than 0")
    return sorted(names), count


class _Stage:
    """A stage on its rank: its modules, which share buffers, one for each place of weights.

    shared: its parameters that tied stages have, too: they lie first in weights and gradients
    """

    def __init__(
        self, module: torch.nn.Module, make: MakeOptimizer, shared: Sequence[Tensor] = ()
    ) -> None:
        self.module = copy.deepcopy(module)  # its parameters are the optimizer's
        number = {p: i for i, p in enumerate(module.parameters())}
        first = [number[p] for p in shared]
        self.order = first + [i for i in number.values() if i not in first]
        self.tied = sum(p.nbytes for p in shared)
        self.parameters = self.in_order(self.module)
        for p, given in zip(self.parameters, self.in_order(module)):
            p.__dict__.update(given.__dict__)  # such as no_decay, which deepcopy leaves out
        self.shapes = [p.shape for p in self.parameters]
        self.size = sum(p.numel() for p in self.parameters)
        if any(p.device.type != "cpu" for p in self.parameters):
            raise ValueError("a stage has parameters on a device: this engine is the CPU's")
        self.dtype = self.parameters[0].dtype if self.parameters else torch.float32
        if any(p.dtype != self.dtype for p in self.parameters):
            types = sorted({str(p.dtype) for p in self.parameters})
            raise ValueError(f"a stage with parameters of several types: {types}")
        self.bytes = self.size * self.dtype.itemsize
        self.optimizer = make(self.module) if self.parameters else None
        self.moments, self.count = _state(self, make) if self.optimizer else ([], None)
        self.at: dict[int, torch.nn.Module] = {}
        self.seen: dict[int, list[Tensor]] = {}
        self.adds: set[int] = set()

    def in_order(self, module: torch.nn.Module) -> list[Tensor]:
        """The parameters of a copy, as they lie in weights and gradients."""
        parameters = list(module.parameters())
        return [parameters[i] for i in self.order]

    def views(self, address: int) -> list[Tensor]:
        """The tensors whose values lie there, one after the other."""
        if address in self.seen:
            return self.seen[address]
        flat, at, views = _tensor(address, self.dtype, (self.size,)), 0, []
        for shape in self.shapes:
            views.append(flat[at : at + shape.numel()].view(shape))
            at += shape.numel()
        self.seen[address] = views
        return views

    def of(self, call: rt.Call) -> torch.nn.Module:
        """The module with the weights that an op reads."""
        module = self.at.get(call.weight)
        if module is None:
            module = copy.deepcopy(self.module, {id(b): b for b in self.module.buffers()})
            for p, view in zip(self.in_order(module), self.views(call.weight)):
                p.data = view
            for m, mine in zip(module.modules(), self.module.modules()):
                m._buffers = mine._buffers  # those that a forward assigns anew, too
            self.at[call.weight] = module
        return module

    def keep(self, call: rt.Call) -> None:
        """Lets the optimizer find its state where the engine keeps it, from the first update on."""
        assert self.optimizer is not None
        moments = [self.views(call.opt + i * self.bytes) for i in range(len(self.moments))]
        for p, *views in zip(self.parameters, *moments):
            if p.requires_grad and (views or self.count is not None):
                state = self.optimizer.state[p]
                for name, view in zip(self.moments, views):
                    if state.get(name) is not view:
                        if name in state:  # by load_state_dict
                            view.copy_(state[name])
                        state[name] = view
                if self.count is not None:
                    tensor = isinstance(self.count, Tensor)
                    now = torch.full_like(self.count, call.updates) if tensor else call.updates
                    state.setdefault("step", now)

    def leave(self) -> None:
        """Takes what the optimizer has out of the memory of the engine."""
        for p in self.parameters:
            p.data, p.grad = p.data.clone(), None
            state = self.optimizer.state.get(p, {}) if self.optimizer else {}
            state.update({name: state[name].clone() for name in self.moments if name in state})

    def gradients(self, module: torch.nn.Module, call: rt.Call) -> None:
        """Lets backward add to the gradients of the stage, which stay where they are."""
        if id(module) in self.adds:
            return
        self.adds.add(id(module))
        for p, view in zip(self.in_order(module), self.views(call.grad)):
            p.grad = view if p.requires_grad else None


def _tensor(address: int, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """The memory at an address, as a tensor."""
    count = 1
    for n in shape:
        count *= n
    room = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return (
        torch.frombuffer(room, dtype=dtype).view(tuple(shape))
        if count
        else torch.empty(tuple(shape), dtype=dtype)
    )


@dataclass
class _Sizes:
    """Of one microbatch on a stage, found by carrying it out once."""

    output: Tensor  # a tensor like what the stage returns
    act: int  # bytes that autograd keeps from forward to backward, but for parameters
    gout: int  # bytes of the gradients that I keeps for W
    draws: bool  # it draws random numbers, as dropout does


def _buffers(module: torch.nn.Module) -> list[tuple[dict[str, Any], dict[str, Tensor]]]:
    """The buffers of each module within, and a copy of them."""
    all = [m._buffers for m in module.modules()]
    return [(of, {name: b.clone() for name, b in of.items() if b is not None}) for of in all]


def _split(y: Tensor, dy: list[Tensor] | None, x: Tensor, stage: torch.nn.Module) -> Any:
    """I of a stage. PyTorch detaches y in place, which it refuses for a view."""
    y = y.clone() if y._is_view() else y
    return stage_backward_input([y], dy, [x], stage.parameters())


def _gradients_kept(y: Tensor, x: Tensor, stage: torch.nn.Module) -> int:
    """Runs I of a stage; y may be its loss."""
    dy = [torch.ones_like(y)]
    _, groups = _split(y, dy, x, stage)
    grads = [g for group in groups for g in group.get("grads", []) if g is not None]
    return sum(
        t.nbytes for g in grads for t in (g if isinstance(g, tuple) else [g]) if t is not None
    )


def _shared(stages: Sequence[torch.nn.Module]) -> list[list[Tensor]]:
    """The parameters of each stage that other stages have, too, in one order."""
    users: dict[Tensor, set[int]] = {}
    for i, stage in enumerate(stages):
        for p in stage.parameters():
            if p.requires_grad:
                users.setdefault(p, set()).add(i)
    return [[p for p, of in users.items() if len(of) > 1 and i in of] for i in range(len(stages))]


def _check_ties(
    stages: Sequence[torch.nn.Module], shared: list[list[Tensor]], tie: Mapping[int, int | None]
) -> None:
    """Refuses what is shared but not tied, and the other way round.
    tie: of each stage the first one of its tie, or None."""
    firsts: dict[Tensor, int] = {}
    for i, own in enumerate(shared):
        for p in own:
            first = firsts.setdefault(p, i)
            if first != i and (tie[i] is None or tie[i] != tie[first]):
                name = next(name for name, q in stages[i].named_parameters() if q is p)
                raise ValueError(
                    f"stages {first} and {i} share a parameter, '{name}' of {i}, "
                    f"and the schedule has no `tie {first}, {i}`"
                )
        j = tie[i]
        if j is not None and not own:
            raise ValueError(f"the schedule ties stage {i}, which shares no parameter")
        if j is not None and [*map(id, own)] != [*map(id, shared[j])]:
            raise ValueError(
                f"the schedule ties stages {j} and {i}, "
                "and one shares a parameter that the other lacks"
            )


def _measure(stages: Sequence[torch.nn.Module], x: Tensor) -> list[_Sizes]:
    """What each stage makes of the example, and what it keeps."""
    sizes = []
    with torch.random.fork_rng():
        for number, stage in enumerate(stages):
            stage, saved = copy.deepcopy(stage), {}
            own = {p.untyped_storage().data_ptr() for p in stage.parameters()}
            x = x.detach().requires_grad_(number > 0)

            def pack(t: Tensor) -> Tensor:
                saved[t.untyped_storage().data_ptr()] = t
                return t.detach()

            state = torch.get_rng_state()
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                y = stage(x.clone())
            if not isinstance(y, Tensor):
                raise TypeError(f"a stage returns {type(y).__name__}, not one tensor")
            draws = not torch.equal(state, torch.get_rng_state())
            act = sum(t.untyped_storage().nbytes() for at, t in saved.items() if at not in own)
            splits = number > 0 and y.requires_grad
            gout = _gradients_kept(y, x, stage) if splits else y.nbytes
            sizes.append(_Sizes(y.detach(), act, gout, draws))
            x = y
    return sizes


class Run:
    """Modules that are trained in the order of a schedule, each rank on a thread of this process.

    schedule:  what `pipec.compile` returns
    stages:    the modules of all stages, in order; each takes one tensor and returns one; Run
               copies them. Stages that share parameters are tied in the schedule
    loss_fn:   (output, target) -> the mean loss of one microbatch
    example:   an input of one microbatch, by which the sizes of tensors between stages are found
    optimizer: a module -> its optimizer, such as lambda m: torch.optim.AdamW(m.parameters())
    deadline:  seconds that a step may take, 0: as the schedule predicts

    An update applies the mean gradient of the microbatches that the schedule lets it apply; a
    parameter that none of them reaches has the gradient 0, not None. Where the schedule gives a
    backward other weights than its forward had, it differentiates with those: weights that autograd
    saves as they are. What a forward derives from weights (weight_norm) stays the forward's.
    Raises RunError where the engine refuses the schedule or the sizes, and ValueError where the
    modules do not fit it. Leave it by `with`, or `close()`.
    """

    def __init__(
        self,
        schedule: Schedule,
        stages: Sequence[torch.nn.Module],
        loss_fn: Callable[[Tensor, Tensor], Tensor],
        example: Tensor,
        optimizer: MakeOptimizer,
        *,
        deadline: float = 0,
    ) -> None:
        rows = schedule.json["stages"]
        count = 1 + max(row["model"] for row in rows)
        if len(stages) != count:
            raise ValueError(f"the schedule is for {count} stages, not {len(stages)}")
        for i, stage in enumerate(stages):
            for name, p in stage.named_parameters():
                if p._backward_hooks or p._post_accumulate_grad_hooks:
                    raise ValueError(f"'{name}' of stage {i} has hooks, which its copy would lack")
        shared = _shared(stages)
        _check_ties(stages, shared, {row["model"]: row.get("tied_with") for row in rows})
        if isinstance(loss_fn, torch.nn.Module) and any(
            p.requires_grad for p in loss_fn.parameters()
        ):
            raise ValueError("the loss function has parameters: put it into the last stage")
        self.schedule, self._loss_fn = schedule, loss_fn
        self._microbatches = schedule.json["microbatches"]
        self._rows = [(row["rank"], row["model"]) for row in rows]
        ops = [op for rank in schedule.json["rank"] for op in rank["instr"]]
        self._versions = any("version" in op for op in ops)
        self._stage = {row: _Stage(stages[row[1]], optimizer, shared[row[1]]) for row in self._rows}
        self._one = [
            next(s for (_, model), s in self._stage.items() if model == i) for i in range(count)
        ]
        self._trains = not schedule.json["forward"]
        rates = {float(g["lr"]) for o in self.optimizers for g in o.param_groups}
        if schedule.json.get("formulas") and len(rates) > 1:
            raise ValueError(
                f"formulas of the schedule take one learning rate, not {sorted(rates)}"
            )
        self._sizes_of = _measure(stages, example)
        recomputes = any(re.fullmatch(r"\d+R\d+", op["op"]) for op in ops)
        if recomputes and any(size.draws for size in self._sizes_of):
            raise ValueError(
                "the schedule recomputes forwards, and dropout, or what else a stage draws at "
                "random, would be another the second time"
            )
        self._stash: dict[tuple[int, int, int], _Stash] = {}
        self._slot: dict[tuple[int, int], Tensor] = {}
        self._error: BaseException | None = None
        self._turn = threading.Lock()  # a step at a time
        self._said: dict[int, Any] = (
            {}
        )  # by thread; threading.local forgets between two calls from C
        self._model = rt.Model(
            nstage=count,
            nslice=1,
            elem=4 if all(s.dtype == torch.float32 for s in self._stage.values()) else 0,
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
        )
        self._run = c_void_p()
        status = rt.lib.pr_open(
            byref(self._run),
            schedule.program,
            byref(self._model),
            byref(rt.Options(deadline_s=deadline)),
        )
        self._pid = os.getpid()
        # it keeps the schedule, which pr_close reads
        self._end = weakref.finalize(self, lambda run, _: rt.lib.pr_close(run), self._run, schedule)
        self._check(status)

    # What users call

    def step(self, x: Tensor, target: Tensor) -> float:
        """Carries out one step on a batch, whose first dimension is cut into the microbatches;
        returns the mean loss."""
        with self._turn:
            return self._step(x, target)

    def _step(self, x: Tensor, target: Tensor) -> float:
        self._autocast = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")
        if self._versions and self._autocast[1]:
            raise ValueError("under autocast a backward cannot have other weights than its forward")
        self._batch = x.chunk(self._microbatches), target.chunk(self._microbatches)
        for what, parts in zip(("input", "target"), self._batch):
            rows = {len(p) for p in parts}
            if len(parts) != self._microbatches or len(rows) != 1 or rows == {0}:
                raise ValueError(
                    f"{what} of {sum(map(len, parts))} rows: "
                    f"not {self._microbatches} equal microbatches"
                )
        self._check(rt.lib.pr_steps(self._open, 1))
        return float(rt.lib.pr_loss(self._open))

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Of the stages, those of replicas too; for schedulers of the learning rate."""
        return [s.optimizer for s in self._stage.values() if s.optimizer is not None]

    def state_dict(self, stage: int) -> dict[str, Tensor]:
        """Copies of the newest weights and of the buffers of a stage, for `load_state_dict`."""
        row = next((i for i, (_, model) in enumerate(self._rows) if model == stage), None)
        if row is None:
            raise IndexError(f"there is no stage {stage}")
        own = self._stage[self._rows[row]]
        at = rt.lib.pr_weight(self._open, row)
        if own.size and not at:  # perhaps in the middle of an update
            raise RunError(
                "the run has failed: " + rt.lib.pr_error(self._run).decode("utf-8", "replace")
            )
        newest = dict(zip(own.parameters, own.views(at))) if own.size else {}
        return {
            name: newest.get(t, t).detach().clone()
            for name, t in own.module.state_dict(keep_vars=True).items()
        }

    @property
    def bytes(self) -> list[int]:
        """Of each rank: what the engine has allocated, and the stashes that it counts."""
        return [rt.lib.pr_bytes(self._open, r) for r in range(self.schedule.json["ranks"])]

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def save(self, folder: str | os.PathLike[str], keep: int = 0) -> None:
        """Writes a checkpoint: a folder of safetensors files, in which weights have the names that
        they have in torch.nn.Sequential(*stages), and optimizer states the same with theirs behind.
        keep: how many to keep, 0: all. Raises ValueError for modules with buffers: it has none."""
        for _, own in self._stage.items():
            kept = [
                name
                for name, t in own.module.state_dict(keep_vars=True).items()
                if not isinstance(t, torch.nn.Parameter)
            ]
            if kept:
                raise ValueError(f"a checkpoint has no buffers, and a stage has '{min(kept)}'")
        self._check(rt.lib.pr_checkpoint(self._open, os.fsencode(folder), keep))

    def resume(self, folder: str | os.PathLike[str]) -> int:
        """Goes on from the latest checkpoint of a folder, before the first step; the steps it has
        done, 0: there is none. The schedule and its ranks may be others."""
        steps = c_uint64()
        self._check(rt.lib.pr_resume(self._open, os.fsencode(folder), byref(steps)))
        return steps.value

    def close(self) -> None:
        """Ends the threads and frees the memory of the engine; optimizers keep theirs."""
        for own in self._stage.values() if self._end.alive else ():
            own.leave()
        self._end()

    @property
    def _open(self) -> c_void_p:
        if not self._end.alive:
            raise ValueError("the run is closed")
        if self._pid != os.getpid():
            raise ValueError("the run is of the process that forked this one, with its threads")
        return self._run

    # Errors

    def _guard(self, kind: Any, call: Callable[..., None]) -> Any:
        """A callback of C that fails where the method raises; what it has raised is kept."""

        def guarded(_: int, *arguments: Any) -> int:
            try:
                call(*arguments)
                return 0
            except BaseException as e:
                self._error = self._error or e
                said = ctypes.create_string_buffer(
                    f"{type(e).__name__}: {e}".encode("utf-8", "replace")
                )
                self._said[threading.get_ident()] = said
                return 1

        return kind(guarded)

    def _why(self, _: int) -> int | None:
        text = self._said.get(threading.get_ident())
        return None if text is None else ctypes.addressof(text)

    def _check(self, status: int) -> None:
        if status:
            raise RunError(rt.lib.pr_error(self._run).decode("utf-8", "replace")) from self._error

    # What the engine calls, on the threads of the ranks

    def _sizes(self, stage: int, out: Any) -> None:
        own = self._one[stage]
        size, last = self._sizes_of[stage], stage + 1 == len(self._sizes_of)
        out[0].act, out[0].gout = size.act, size.gout
        out[0].boundary = 0 if last else size.output.nbytes
        out[0].weight = out[0].grad = own.bytes
        out[0].opt, out[0].tied = len(own.moments) * own.bytes, own.tied

    def _init(self, stage: int, weight: int, _: int) -> None:
        own = self._one[stage]
        for view, p in zip(own.views(weight), own.parameters):
            view.copy_(p.detach())

    def _between(self, stage: int, address: int) -> Tensor:
        found = self._slot.get((stage, address))
        if found is None:
            like = self._sizes_of[stage].output
            found = self._slot[stage, address] = _tensor(address, like.dtype, like.shape)
        return found

    def _forward(self, pointer: Any) -> None:
        call = pointer[0]
        if call.nx > 1 or call.ny > 1:
            raise NotImplementedError("a stage with several inputs or outputs")
        inputs, targets = self._batch
        x = inputs[call.mb].detach()
        if call.nx:
            x = self._between(call.stage - 1, call.x).detach().requires_grad_()
        keeps = self._trains and not call.recomputed
        with torch.set_grad_enabled(keeps):
            own = self._stage[call.rank, call.stage]
            before = _buffers(own.module) if call.recomputed else []
            with self._cast():
                stash = self._call(own, call, x)
            for buffers, old in before:  # R is the one that moves them
                buffers.update(old)
            if not call.ny:
                with self._cast():
                    loss = self._loss_fn(stash.y, targets[call.mb])
                call.loss[0] = float(loss.detach())
                stash.y = loss
        if call.ny:
            y, slot = stash.y.detach(), self._between(call.stage, call.y)
            if (y.shape, y.dtype) != (slot.shape, slot.dtype):  # copy_ would make them fit
                raise ValueError(
                    f"the stage returns {y.dtype} of {list(y.shape)}, "
                    f"and of the example {slot.dtype} of {list(slot.shape)}"
                )
            slot.copy_(y)
        if keeps:
            self._stash[call.rank, call.stage, call.mb] = stash

    def _cast(self) -> contextlib.AbstractContextManager[Any]:
        """The autocast of the thread that has called `step`."""
        dtype, on = self._autocast
        return torch.autocast("cpu", dtype) if on else contextlib.nullcontext()

    def _call(self, own: _Stage, call: rt.Call, x: Tensor) -> _Stash:
        """The forward of a stage. Where a backward may read other weights, they are saved as
        places."""
        module = own.of(call)
        stash = _Stash(x if call.nx else None, x, module)
        if not self._versions:
            stash.y = module(x.clone())
            return stash
        lo, hi = call.weight, call.weight + own.size * own.dtype.itemsize

        def pack(t: Tensor) -> Any:
            at = t.data_ptr()
            return (at - lo, t.shape, t.stride()) if lo <= at < hi else t.detach()

        def unpack(kept: Any) -> Tensor:
            if isinstance(kept, Tensor):
                return kept
            at, shape, stride = kept
            all = _tensor(stash.weight, own.dtype, (own.size,))
            return all.as_strided(shape, stride, at // own.dtype.itemsize)

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            stash.y = module(x.clone())  # the slot is the op's only as long as it runs
        return stash

    def _backward(self, pointer: Any) -> None:
        call = pointer[0]
        stash = self._stash.pop((call.rank, call.stage, call.mb))
        stash.weight = call.weight
        self._stage[call.rank, call.stage].gradients(stash.module, call)
        if stash.y.requires_grad:  # not on a first stage that is frozen, or has no parameters
            dy = self._between(call.stage, call.dy) if call.ny else None
            torch.autograd.backward(stash.y, dy)
        if stash.x is not None:
            self._give(call, stash.x.grad)

    def _give(self, call: rt.Call, dx: Tensor | None) -> None:
        """The gradient of the input; None: the stage does not use it."""
        slot = self._between(call.stage - 1, call.dx)
        slot.zero_() if dx is None else slot.copy_(dx)

    def _input(self, pointer: Any) -> None:
        call = pointer[0]
        stash = self._stash[call.rank, call.stage, call.mb]
        stash.weight = call.weight
        dy = self._between(call.stage, call.dy).clone() if call.ny else None
        if stash.x is None:  # nobody waits for its gradient: all is done in W
            stash.rest = dy
            return
        dx, stash.rest = _split(stash.y, None if dy is None else [dy], stash.x, stash.module)
        self._give(call, dx[0])

    def _weight(self, pointer: Any) -> None:
        call = pointer[0]
        stash = self._stash.pop((call.rank, call.stage, call.mb))
        self._stage[call.rank, call.stage].gradients(stash.module, call)
        if stash.x is None:
            if stash.y.requires_grad:
                torch.autograd.backward(stash.y, stash.rest)
        else:
            stage_backward_weight(stash.module.parameters(), stash.rest)

    def _update(self, pointer: Any) -> None:
        call = pointer[0]
        own = self._stage[call.rank, call.stage]
        if own.optimizer is None:
            return
        gradient = _tensor(call.grad, own.dtype, (own.size,)).div_(call.applied)
        if call.weight != call.newest:
            ctypes.memmove(call.weight, call.newest, own.size * own.dtype.itemsize)
        for p, view, grad in zip(own.parameters, own.views(call.weight), own.views(call.grad)):
            p.data, p.grad = view, grad if p.requires_grad else None
        own.keep(call)
        rates = [group["lr"] for group in own.optimizer.param_groups]
        for group in own.optimizer.param_groups:
            group["lr"] = group["lr"] * call.rate  # a new one: it may be a tensor
        own.optimizer.step()
        for group, rate in zip(own.optimizer.param_groups, rates):
            group["lr"] = rate
        gradient.zero_()

    def _reduce(self, stage: int, gradients: Any, count: int, size: int) -> None:
        dtype = self._one[stage].dtype
        parts = [_tensor(gradients[i], dtype, (size // dtype.itemsize,)) for i in range(count)]
        for part in parts[1:]:
            parts[0] += part
        for part in parts[1:]:
            part.copy_(parts[0])

    def _rate(self, _: int, stage: int, update: int) -> float:
        optimizer = self._one[stage].optimizer
        return float(optimizer.param_groups[0]["lr"]) if optimizer else 0.0

    def _moment(self, _: int, stage: int, which: int) -> int:
        own = self._one[stage]
        for names in ("momentum_buffer", "exp_avg"), ("exp_avg_sq",):
            for name in names:
                if which == 0 and name in own.moments:
                    return own.moments.index(name) * own.bytes
            which -= 1
        return -1

    def _named(self, _: int, stage: int, index: int, out: Any) -> int:
        """Tensor `index` of a stage, in weights and then in each moment."""
        own = self._one[stage]
        which, number = divmod(index, max(1, len(own.parameters)))
        if which > len(own.moments) or not own.parameters:
            return 1
        name, p = list(own.module.named_parameters())[own.order[number]]
        ahead = own.parameters[:number]
        t = out[0]
        t.name = f"{stage}.{name}{'.' + own.moments[which - 1] if which else ''}".encode()[:128]
        t.of = min(which, 1)
        t.dtype = _DTYPES.index(str(own.dtype).removeprefix("torch."))
        t.at = max(0, which - 1) * own.bytes + sum(q.numel() for q in ahead) * own.dtype.itemsize
        t.ndim = p.dim()
        t.shape[: p.dim()] = list(p.shape)
        return 0


def profile(
    stages: Sequence[torch.nn.Module],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    example: Tensor,
    target: Tensor,
    optimizer: MakeOptimizer,
    *,
    repeats: int = 7,
) -> dict[str, Any]:
    """What each stage takes for one microbatch, for `compile(profile=...)`: the median times of its
    ops in ns, and the bytes that `Run` asks for. One stage runs after the other, on this thread.

    example, target: one microbatch
    """
    x, entries, shared = example, [], _shared(stages)
    for number, (stage, size) in enumerate(zip(stages, _measure(stages, example))):
        own = _Stage(stage, optimizer, shared[number])
        last, took = number + 1 == len(stages), collections.defaultdict(list)
        for _ in range(repeats + 1):  # the first one is thrown away
            for split in False, True:
                one = _one_microbatch(
                    own, x, number > 0, (lambda y: loss_fn(y, target)) if last else None, split
                )
                for op, ns in one.items():
                    took[op].append(ns)
        times = {op: int(statistics.median(ns[1:])) for op, ns in took.items()}
        sizes = {"act": size.act, "gout": size.gout, "boundary": 0 if last else size.output.nbytes}
        sizes |= {"weight": own.bytes, "grad": own.bytes, "opt": len(own.moments) * own.bytes}
        sizes |= {"tied": own.tied} if any(shared) else {}
        entries.append(times | {"R": times["F"], "send": 0} | sizes)
        x = size.output
    return {"pipe_profile": 1, "stages": entries}


def _one_microbatch(
    own: _Stage, x: Tensor, inner: bool, loss: Callable[[Tensor], Tensor] | None, split: bool
) -> dict[str, int]:
    """Runs the ops of a microbatch and an update; ns by op. split: I and W in place of B."""
    x = x.detach().requires_grad_(inner)
    now = time.perf_counter_ns
    start = now()
    y = own.module(x.clone())
    if loss:
        y = loss(y)
    took = {"F": now() - start}
    dy = None if loss else torch.ones_like(y)
    start = now()
    if not split or not inner:
        if y.requires_grad:
            torch.autograd.backward(y, dy)
        took["W" if split else "B"] = now() - start
        took |= {"I": 0} if split else {}
    else:
        given = None if dy is None else [dy]
        _, groups = _split(y, given, x, own.module)
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

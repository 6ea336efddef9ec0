# SPDX-License-Identifier: MIT
"""A stage of the model for the engine: its modules, one for each address of weights, its optimizer,
the parameters that it shares with other stages, and the sizes of its tensors."""

from __future__ import annotations

import copy
import ctypes
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch.distributed.pipelining._backward import stage_backward_input

from . import _runtime as rt
from ._devices import Host

Tensor = torch.Tensor
Tensors = Tensor | tuple[Tensor, ...]
MakeOptimizer = Callable[[torch.nn.Module], torch.optim.Optimizer]


@dataclass
class Known:
    """The properties of a stage that all processes know."""

    dtype: torch.dtype
    size: int  # elements of its weights
    tensors: list[tuple[str, torch.Size]]  # its parameters, in the order of weights and gradients
    moments: list[str]  # names of optimizer states; each is an array like the weights
    tied: int  # bytes of its first parameters, those shared with other stages
    weights: bytes  # digest of all parameters
    shared: bytes  # digest of the shared parameters

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.itemsize

    def known(self) -> Known:
        return Known(*(getattr(self, field.name) for field in fields(Known)))


def _digest(tensors: Iterable[Tensor]) -> bytes:
    hash = hashlib.blake2b(digest_size=16)
    for t in tensors:
        t = t.detach().cpu().contiguous()
        hash.update((ctypes.c_char * t.nbytes).from_address(t.data_ptr()) if t.nbytes else b"")
    return hash.digest()


class Stash:
    """The stash of one microbatch on a stage, from F or R to its last backward.

    x: the inputs
    y: the gradient edges of the differentiable outputs, or of the loss; the backward begins there
    """

    def __init__(self, x: Sequence[Tensor], module: torch.nn.Module) -> None:
        self.x, self.module = x, module
        self.wanted = [t for t in x if t.requires_grad]
        self.y: list[Any] = []
        self.one: list[Tensor] = []  # gradient of the loss
        self.weight = 0  # address of the version that the backward reads
        self.rest: Any = None  # data that I leaves for W


def _state(own: Stage, make: MakeOptimizer) -> tuple[list[str], Tensor | None]:
    """The names of the states that the optimizer keeps per parameter, and its initial step counter,
    found by one step of a second optimizer. States must begin with 0, because they are placed in
    zeroed memory of the engine."""
    module = copy.deepcopy(own.module)
    for p, given in zip(own.in_order(module), own.parameters):
        p.__dict__.update(given.__dict__)
    optimizer = make(module)
    for group in optimizer.param_groups:  # weight decay would make the first moments non-zero
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


class Stage(Known):
    """A stage on its rank: its modules, one for each address of weights; they share buffers.

    shared: its parameters that tied stages have too; they come first in weights and gradients
    place:  where the run keeps its tensors
    """

    def __init__(
        self, module: torch.nn.Module, make: MakeOptimizer, shared: Sequence[Tensor], place: Host
    ) -> None:
        self.place = place
        self.module = copy.deepcopy(module)  # the optimizer owns its parameters
        number: dict[Tensor, int] = {p: i for i, p in enumerate(module.parameters())}
        first = [number[p] for p in shared]
        self.order = first + [i for i in number.values() if i not in first]
        self.tied = sum(p.nbytes for p in shared)
        self.weights, self.shared = _digest(module.parameters()), _digest(shared)
        self.parameters = self.in_order(self.module)
        for p, given in zip(self.parameters, self.in_order(module)):
            p.__dict__.update(given.__dict__)  # attributes such as no_decay, which deepcopy drops
        names = [name for name, _ in self.module.named_parameters()]
        self.tensors = [(names[i], p.shape) for i, p in zip(self.order, self.parameters)]
        self.size = sum(p.numel() for p in self.parameters)
        self.dtype = self.parameters[0].dtype if self.parameters else torch.float32
        if any(p.dtype != self.dtype for p in self.parameters):
            types = sorted({str(p.dtype) for p in self.parameters})
            raise ValueError(f"a stage with parameters of several types: {types}")
        self.optimizer = make(self.module) if self.parameters else None
        self.moments, self.count = _state(self, make) if self.optimizer else ([], None)
        self.at: dict[int, torch.nn.Module] = {}
        self.seen: dict[int, list[Tensor]] = {}
        self.adds: set[int] = set()

    def in_order(self, module: torch.nn.Module) -> list[Tensor]:
        """The parameters of a copy, in the order of weights and gradients."""
        parameters = list(module.parameters())
        return [parameters[i] for i in self.order]

    def flat(self, address: int) -> Tensor:
        """All weights, or gradients, at `address` as one tensor."""
        return self.place.tensor(address, self.dtype, (self.size,))

    def views(self, address: int) -> list[Tensor]:
        """The parameters as tensors over the memory at `address`, one after the other."""
        if address in self.seen:
            return self.seen[address]
        flat, at, views = self.flat(address), 0, []
        for _, shape in self.tensors:
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
                m._buffers = mine._buffers  # shared even if a forward assigns new ones
            self.at[call.weight] = module
        return module

    def keep(self, call: rt.Call) -> None:
        """Moves the state of the optimizer to memory of the engine, before an update."""
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
                if self.count is not None and "step" not in state:
                    tensor = isinstance(self.count, Tensor)
                    now = torch.full_like(self.count, call.updates) if tensor else call.updates
                    state["step"] = now

    def leave(self) -> None:
        """Copies the state of the optimizer out of memory of the engine."""
        for p in self.parameters:
            p.data, p.grad = p.data.clone(), None
            state = self.optimizer.state.get(p, {}) if self.optimizer else {}
            state.update({name: state[name].clone() for name in self.moments if name in state})

    def gradients(self, module: torch.nn.Module, call: rt.Call) -> None:
        """Makes backward add to the gradients in memory of the engine."""
        if id(module) in self.adds:
            return
        self.adds.add(id(module))
        for p, view in zip(self.in_order(module), self.views(call.grad)):
            p.grad = view if p.requires_grad else None


def as_tuple(tensors: Tensors) -> tuple[Tensor, ...]:
    return tensors if isinstance(tensors, tuple) else (tensors,)


def offsets(message: Sequence[Tensor]) -> tuple[list[int], int]:
    """Where the tensors of a message lie, each at a multiple of 64 bytes, and its total bytes."""
    at, found = 0, []
    for t in message:
        at = -(-at // 64) * 64
        found.append(at)
        at += t.nbytes
    return found, at


@dataclass
class Sizes:
    """Sizes of one microbatch on a stage, measured by one forward and backward."""

    output: tuple[Tensor, ...]  # the outputs of the stage, on the CPU, as leaves of autograd
    act: int  # bytes that autograd keeps from forward to backward, without parameters
    gout: int  # bytes of gradients that I keeps for W; 0 if the schedule has no I
    draws: bool  # the stage draws random numbers, for example dropout

    @property
    def boundary(self) -> int:
        return offsets(self.output)[1]


def buffers_of(module: torch.nn.Module) -> list[tuple[dict[str, Any], dict[str, Tensor]]]:
    """The buffers of each submodule, and copies of them."""
    all = [m._buffers for m in module.modules()]
    return [(of, {name: b.clone() for name, b in of.items() if b is not None}) for of in all]


def edges(y: Iterable[Tensor]) -> list[Any]:
    """The gradient edges of outputs, where their backward begins; they do not keep the outputs."""
    return [torch.autograd.graph.get_gradient_edge(t) for t in y if t.requires_grad]


def _backward(y: Sequence[Tensor], x: list[Tensor], stage: torch.nn.Module, splits: bool) -> int:
    """Runs B of a stage, or I; returns the bytes that I keeps for W."""
    y = [t for t in y if t.requires_grad]
    dy = [torch.ones_like(t) for t in y]
    if not splits:
        if y:
            torch.autograd.backward(edges(y), dy)
        return 0
    if not x:
        return sum(t.nbytes for t in dy)
    _, groups = stage_backward_input(edges(y), dy, x, stage.parameters())
    grads = [g for group in groups for g in group.get("grads", []) if g is not None]
    return sum(
        t.nbytes for g in grads for t in (g if isinstance(g, tuple) else [g]) if t is not None
    )


def devices_of(stages: Iterable[torch.nn.Module]) -> set[torch.device]:
    """The devices of the parameters."""
    return {p.device for stage in stages for p in stage.parameters()}


def shared_parameters(stages: Sequence[torch.nn.Module | None]) -> list[list[Tensor]]:
    """The parameters of each stage that other stages have too, in one common order."""
    users: dict[Tensor, set[int]] = {}
    for i, stage in enumerate(stages):
        for p in stage.parameters() if stage is not None else ():
            if p.requires_grad:
                users.setdefault(p, set()).add(i)
    return [[p for p, of in users.items() if len(of) > 1 and i in of] for i in range(len(stages))]


def check_ties(
    stages: Sequence[torch.nn.Module | None],
    shared: list[list[Tensor]],
    tie: Mapping[int, int | None],
) -> None:
    """Raises ValueError if stages share parameters but are not tied, or are tied but share none.
    tie: for each stage the first stage of its tie, or None."""
    firsts: dict[Tensor, int] = {}
    for i, own in enumerate(shared):
        for p in own:
            first = firsts.setdefault(p, i)
            if first != i and (tie[i] is None or tie[i] != tie[first]):
                stage = stages[i]
                assert stage is not None
                name = next(name for name, q in stage.named_parameters() if q is p)
                raise ValueError(
                    f"stages {first} and {i} share a parameter, '{name}' of {i}, "
                    f"and the schedule has no `tie {first}, {i}`"
                )
        j = tie[i]
        if stages[i] is None:
            continue
        if j is not None and not own:
            raise ValueError(f"the schedule ties stage {i}, which shares no parameter")
        if j is not None and [*map(id, own)] != [*map(id, shared[j])]:
            raise ValueError(
                f"the schedule ties stages {j} and {i}, "
                "and one shares a parameter that the other lacks"
            )


def _measure_one(stage: torch.nn.Module, x: Tensors | None, place: Host, splits: bool) -> Sizes:
    """The outputs of a stage for x, and the bytes that it keeps. What the device loads for an op it
    loads here, before the first step."""
    if x is None:
        raise ValueError("no example in a process that has the first stage")
    stage, saved = copy.deepcopy(stage), {}
    own = {p.untyped_storage().data_ptr() for p in stage.parameters()}
    xs = [t.detach().to(place.device).requires_grad_(t.requires_grad) for t in as_tuple(x)]
    wanted = [t for t in xs if t.requires_grad]

    def pack(t: Tensor) -> Tensor:
        saved[t.untyped_storage().data_ptr()] = t
        return t.detach()

    with place.keep_random_state():
        before = place.random_state()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            y = as_tuple(stage(*[t.clone() for t in xs]))
        if not all(isinstance(t, Tensor) for t in y):
            raise TypeError("a stage returns neither a tensor nor a tuple of tensors")
        draws = not all(map(torch.equal, before, place.random_state()))
        act = sum(t.untyped_storage().nbytes() for at, t in saved.items() if at not in own)
        output = tuple(t.detach().cpu().requires_grad_(t.requires_grad) for t in y)
        gout = _backward(y, wanted, stage, splits)
    return Sizes(output, act, gout, draws)


def alone(what: Callable[[], Any]) -> list[Any]:
    """As Processes.together, for a single process."""
    return [what()]


def measure(
    stages: Sequence[torch.nn.Module | None],
    x: Tensors | None,
    place: Host,
    splits: bool,
    together: Callable[..., list[Any]] = alone,
) -> list[Sizes]:
    """The sizes of each stage, measured with the example x. None: another process has the stage.
    splits: the schedule splits backwards into I and W."""
    sizes: list[Sizes] = []
    if x is not None:  # the input of the model needs no gradient
        x = tuple(t.detach() for t in as_tuple(x))
    for stage in stages:
        found = together(lambda: None if stage is None else _measure_one(stage, x, place, splits))
        sizes.append(next(size for size in found if size))
        x = sizes[-1].output
    return sizes

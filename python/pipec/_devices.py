# SPDX-License-Identifier: MIT
"""Where a run keeps its tensors and runs its ops: on the CPU, or on a CUDA device."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Collection, Iterator, Sequence
from ctypes import c_void_p
from types import SimpleNamespace
from typing import Any

import torch

from . import _runtime as rt

Tensor = torch.Tensor
NUMBERS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)  # PrNumber, in its order


class Host:
    """The CPU. An op runs when the engine calls it."""

    def __init__(self) -> None:
        self.lib, self.device = rt.lib, torch.device("cpu")

    def find(self, devices: Collection[torch.device]) -> None:
        """devices: of the parameters in this process. Raises ValueError if they do not fit."""
        for device in devices:
            if device != self.device:
                raise ValueError(
                    f"a stage has parameters on {device}, and the engine is the CPU's: "
                    "engine='cuda' runs stages on a CUDA device"
                )

    def open(self, devices: Collection[torch.device]) -> None:
        """Finds the device, and what a run needs."""
        self.find(devices)

    def engine(
        self, group: Any, carry: Any, why: Any, summed: Collection[torch.dtype]
    ) -> tuple[int | None, ctypes.Structure | None]:
        """PrOptions.engine and what its engine_options point to.

        group:  a PrGroup; None: this process has all ranks
        carry:  PrTransport.carry
        why:    PrModel.why
        summed: the types of the gradients that ranks add up
        """
        return (rt.TRANSPORT, rt.Transport(group, None, carry, why)) if group else (None, None)

    def tensor(self, address: int, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
        """A tensor over the memory at an address."""
        bytes = math.prod(shape) * dtype.itemsize
        if not bytes:
            return torch.empty(tuple(shape), dtype=dtype, device=self.device)
        room = (ctypes.c_char * bytes).from_address(address)
        return torch.frombuffer(room, dtype=dtype).view(tuple(shape))

    def current(self) -> contextlib.AbstractContextManager[Any]:
        """Around calls of the library: they leave the caller's device as it is."""
        return contextlib.nullcontext()

    def begin(self) -> None:
        """The caller has enqueued what the next step reads."""

    def on(self) -> contextlib.AbstractContextManager[Any]:
        """Where a callback of the engine runs."""
        return contextlib.nullcontext()

    def finish(self) -> None:
        """Waits for what the caller has enqueued."""

    def settle(self) -> None:
        """The same, and gives back memory that no tensor uses."""

    def put_loss(self, call: rt.Call, loss: Tensor) -> None:
        call.loss[0] = float(loss.detach())

    def random_state(self) -> list[Tensor]:
        """The states of the generators that modules draw from."""
        return [torch.get_rng_state()]

    def keep_random_state(self) -> contextlib.AbstractContextManager[Any]:
        return torch.random.fork_rng(devices=[])


class Device(Host):
    """A CUDA device. A callback enqueues its work on the stream that the engine names, and returns.

    Memory of stashes: PyTorch's allocator gives memory that a tensor of one stream has left to the
    next tensor of that stream. All ops of a rank run on one stream, and autograd runs a backward on
    the stream of its forward. So work on old and new contents of the memory is in order, whichever
    op drops the tensor. Ranks share only slots, which the engine orders by events.

    Inputs and targets belong to the caller's stream. Each op waits for it, and pr_steps returns
    once the device has finished the step; until then the run refers to them.

    Callbacks do not wait for the device: then the host would look neither at other ranks nor at the
    deadline. A module that does wait ends all the same, because the device needs only rows that the
    hosts have issued before (cuda_issue.c, note [host order]).
    """

    def __init__(self) -> None:
        super().__init__()
        self._streams: dict[int, Any] = {}
        self._tensors: dict[Any, Tensor] = {}

    def open(self, devices: Collection[torch.device]) -> None:
        self.lib = rt.cuda()
        try:
            import numpy  # noqa: F401
        except ImportError:
            raise ValueError(
                "engine 'cuda' needs numpy, with which torch.as_tensor takes memory of a device"
            ) from None
        super().open(devices)

    def find(self, devices: Collection[torch.device]) -> None:
        names = ", ".join(sorted(map(str, devices)))
        if len(devices) > 1:
            raise ValueError(f"the stages of a process are on one device, and these on {names}")
        if any(device.type != "cuda" for device in devices):
            raise ValueError(
                f"engine 'cuda' takes stages on a CUDA device, and these are on {names}: "
                "stage.to('cuda')"
            )
        self.index = next((d.index for d in devices), None)
        if self.index is None:  # no stage has parameters
            self.index = torch.cuda.current_device()
        self.device = torch.device("cuda", self.index)

    def engine(
        self, group: Any, carry: Any, why: Any, summed: Collection[torch.dtype]
    ) -> tuple[int | None, ctypes.Structure | None]:
        if group and (len(summed) > 1 or not {*summed} <= {*NUMBERS}):
            raise ValueError(
                "NCCL adds up the gradients of replicas and of tied stages as one type of "
                f"{', '.join(map(str, NUMBERS))}; they are {', '.join(sorted(map(str, summed)))}"
            )
        number = NUMBERS.index(next(iter(summed))) if group and summed else 0
        engine = ctypes.addressof(ctypes.c_char.in_dll(self.lib, "pr_cuda"))
        return engine, rt.CudaOptions(group=group, device=self.index, grad=number)

    def tensor(self, address: int, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
        key = address, dtype, tuple(shape)
        found = self._tensors.get(key)
        if found is None:
            found = self._tensors[key] = self._over(*key)
        return found

    def _over(self, address: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        bytes = math.prod(shape) * dtype.itemsize
        if not bytes:
            return torch.empty(shape, dtype=dtype, device=self.device)
        at = {"shape": (bytes,), "typestr": "|u1", "data": (address, False), "version": 2}
        room = SimpleNamespace(__cuda_array_interface__=at)
        return torch.as_tensor(room, device=self.device).view(dtype).view(shape)

    def current(self) -> contextlib.AbstractContextManager[Any]:
        return torch.cuda.device(self.device)

    def begin(self) -> None:
        self._given = torch.cuda.current_stream(self.device).record_event()

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        at = self.lib.pr_cuda_stream()
        if not at:  # the run opens: the engine waits for the device before the first step
            yield
            return
        # The thread is the caller's, and so is its autocast, which is meant for forwards alone
        # (Run._cast). It would keep casts of weights beyond an update.
        with self._stream(at), torch.autocast(self.device.type, enabled=False):
            try:
                yield
            finally:
                torch.clear_autocast_cache()

    def _stream(self, at: int) -> contextlib.AbstractContextManager[Any]:
        stream = self._streams.get(at)
        if stream is None:
            stream = self._streams[at] = torch.cuda.ExternalStream(at, device=self.device)
        stream.wait_event(self._given)
        return torch.cuda.stream(stream)

    def finish(self) -> None:
        torch.cuda.current_stream(self.device).synchronize()

    def settle(self) -> None:
        self.finish()
        torch.cuda.empty_cache()

    def put_loss(self, call: rt.Call, loss: Tensor) -> None:
        at = ctypes.cast(call.loss, c_void_p).value
        assert at is not None
        self.tensor(at, torch.float64, ()).copy_(loss.detach().reshape(()))

    def random_state(self) -> list[Tensor]:
        return [*super().random_state(), torch.cuda.get_rng_state(self.device)]

    def keep_random_state(self) -> contextlib.AbstractContextManager[Any]:
        return torch.random.fork_rng(devices=[self.device])

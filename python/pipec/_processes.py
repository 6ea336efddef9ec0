# SPDX-License-Identifier: MIT
"""A process group of torch.distributed, one rank in each process: where the ranks meet, and a
transport of the C engine."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import os
import secrets
import socket
from collections.abc import Callable
from ctypes import byref
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from . import _runtime as rt
from ._schedule import Schedule

T = TypeVar("T")
_START_S = 120.0  # seconds to wait for the other ranks to join the store
_NO_TAG = 2**31 - 1  # a tag that no message has


class Processes:
    """The ranks of a process group. Tensors of the CPU travel through the group; reports of faults
    travel through a store that rank 0 serves at a separate port."""

    def __init__(self, group: dist.ProcessGroup | None, schedule: Schedule) -> None:
        if not dist.is_initialized():
            raise ValueError("torch.distributed has no process group: init_process_group makes one")
        self.own = group is None
        made: Any = group or dist.new_group(backend="gloo")
        self.group: dist.ProcessGroup = made
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        backend = dist.get_backend_config(self.group)
        if "gloo" not in backend:
            raise ValueError(
                f"the group is of {backend}, and Run takes one of gloo: "
                'dist.new_group(backend="gloo")'
            )
        self._store = ctypes.POINTER(rt.Group)()  # null: not open
        self._program = schedule.program
        name = schedule.report.partition(":")[0]
        found = self.together(lambda: (name, schedule._proved.hash))
        for rank, (other, hash) in enumerate(found):
            if hash != found[0][1]:
                raise ValueError(f"rank {rank} has another schedule, {other}; rank 0 {found[0][0]}")

    def together(self, what: Callable[[], T]) -> list[T]:
        """Calls `what` on every rank and returns the results of all ranks. If one rank raises, all
        raise."""
        found: list[Any] = [None] * self.size
        mine, error = None, None
        try:
            mine = what()
        except Exception as e:
            error = e
        said = None if error is None else f"{type(error).__name__}: {error}"
        dist.all_gather_object(found, (mine, said), group=self.group)
        if error:
            raise error
        for rank, (_, said) in enumerate(found):
            if said:
                raise rt.RunError(f"rank {rank}: {said}")
        return [value for value, _ in found]

    def meet(self) -> Any:
        """Opens the store; returns the PrGroup."""

        def find() -> tuple[str, int, str]:
            with socket.socket() as s:
                s.bind(("", 0))
                return socket.gethostname(), s.getsockname()[1], secrets.token_hex(16)

        found = self.together(find)
        host, port, key = found[0]
        one = all(other == host for other, _, _ in found)
        host = "127.0.0.1" if one else os.environ.get("MASTER_ADDR", host)
        at = rt.Launch(b"torch", self.rank, self.size, 0, f"{host}:{port}".encode(), key.encode())
        why = ctypes.create_string_buffer(1024)
        if rt.lib.pr_group_open(byref(self._store), self._program, byref(at), _START_S, why):
            raise rt.RunError(why.value.decode("utf-8", "replace"))
        return self._store

    def carry(self, messages: Any, count: int) -> None:
        """PrTransport.carry."""
        works = []
        for i in range(count):
            m = messages[i]
            room = (ctypes.c_char * m.bytes).from_address(m.data)
            tensors = [torch.frombuffer(room, dtype=torch.uint8)]
            start = self.group.send if m.sends else self.group.recv
            works.append(start(tensors, m.peer, m.tag))
        for work in works:
            work.wait()

    def abort(self) -> None:
        """Ends all pending messages by breaking the group: a gloo wait that times out breaks it."""
        if self.size > 1:
            with contextlib.suppress(RuntimeError):
                some = self.group.recv([torch.empty(1)], (self.rank + 1) % self.size, _NO_TAG)
                some.wait(datetime.timedelta(milliseconds=1))

    def close(self) -> None:
        """Closes the store and the group; call it after pr_close."""
        rt.lib.pr_group_close(self._store)
        self._store = ctypes.POINTER(rt.Group)()
        if self.own and dist.is_initialized():
            dist.destroy_process_group(self.group)

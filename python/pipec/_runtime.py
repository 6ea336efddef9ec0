# SPDX-License-Identifier: MIT
"""Binds libpiperun and libpiperun_cuda by ctypes. Only this file depends on pipe_run.h and
pipe_cuda.h. The libraries are those beside libpipec, whose version _library.py checks."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_uint32, c_uint64, c_void_p

from ._library import prefix


class RunError(RuntimeError):
    """A run has failed. The text names the rank, the op and its line in the schedule. `__cause__`
    is the exception that a module, the loss function or an optimizer raised in this process, if
    any."""


RunError.__module__ = "pipec.engine"  # as users name it


class Sizes(Structure):
    _fields_ = [
        (name, c_uint64) for name in "act gout boundary weight grad opt work edge tied".split()
    ]


class Call(Structure):
    _fields_ = [
        ("op", c_int),
        *((name, c_uint32) for name in "rank stage nstage mb nmb slice nslice".split()),
        ("step", c_uint64),
        *((name, c_void_p) for name in "x dy y dx act gout weight grad opt work past".split()),
        ("loss", POINTER(c_double)),
        ("first_grad", c_int),
        ("recomputed", c_int),
        ("nx", c_uint32),
        ("ny", c_uint32),
        *((name, c_void_p) for name in "xs dys ys dxs stream step_at".split()),
        ("nupdate", c_uint32),
        *((name, c_void_p) for name in "side taken given".split()),
        ("taken_bytes", c_uint64),
        ("given_bytes", c_uint64),
        ("newest", c_void_p),
        ("rate", c_double),
        ("version", c_uint32),
        ("applied", c_uint32),
        ("updates", c_uint64),
    ]


class TensorAt(Structure):
    """PrTensor."""

    _fields_ = [
        ("name", ctypes.c_char * 128),
        ("of", c_int),  # 0: the weights, 1: the optimizer state
        ("dtype", c_int),
        ("at", c_uint64),
        ("ndim", c_uint32),
        ("shape", c_uint64 * 8),
    ]


class Launch(Structure):
    """PrLaunch."""

    _fields_ = [
        ("family", c_char_p),
        *((name, c_uint32) for name in ("rank", "size", "local_rank")),
        ("store", ctypes.c_char * 280),
        ("key", ctypes.c_char * 64),
        ("spare", c_uint32),
    ]


class Group(Structure):
    """PrGroup; opaque here."""


class Message(Structure):
    _fields_ = [
        ("peer", c_uint32),
        ("tag", c_uint32),
        ("sends", c_int),
        ("data", c_void_p),
        ("bytes", c_uint64),
    ]


OP = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Call))
SIZES = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint32, POINTER(Sizes))
INIT = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint32, c_void_p, c_void_p)
REDUCE = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint32, POINTER(c_void_p), c_uint32, c_uint64)
TIE = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(c_uint32), POINTER(c_void_p), c_uint32, c_uint64)
LR = ctypes.CFUNCTYPE(c_double, c_void_p, c_uint32, c_uint64)
MOMENT = ctypes.CFUNCTYPE(ctypes.c_int64, c_void_p, c_uint32, c_int)
TENSOR = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint32, c_uint32, POINTER(TensorAt))
THREAD = ctypes.CFUNCTYPE(None, c_void_p, c_int)
WHY = ctypes.CFUNCTYPE(c_void_p, c_void_p)
CARRY = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Message), c_uint32)


class Model(Structure):
    _fields_ = [
        ("self", c_void_p),
        ("nstage", c_uint32),
        ("sizes", SIZES),
        ("init", INIT),
        *((name, OP) for name in "forward backward backward_input backward_weight update".split()),
        ("reduce", REDUCE),
        ("tie", TIE),
        ("overlap", c_void_p),
        ("nslice", c_uint32),
        ("side", c_void_p),
        ("tensor", TENSOR),
        ("identity", c_char_p),
        ("elem", c_uint32),
        ("lr", LR),
        ("moment", MOMENT),
        ("holds_stash", c_int),
        ("why", WHY),
        ("thread", THREAD),
    ]


class Transport(Structure):
    _fields_ = [("group", POINTER(Group)), ("arg", c_void_p), ("carry", CARRY), ("why", WHY)]


class Options(Structure):
    _fields_ = [
        ("trace_steps", c_uint32),
        ("deadline_s", c_double),
        ("free_running", c_int),
        ("on_step", c_void_p),
        ("on_loss", c_void_p),
        ("arg", c_void_p),
        ("engine", c_void_p),
        ("engine_options", c_void_p),
        ("checksums", c_int),
    ]


class CudaOptions(Structure):
    _fields_ = [
        ("group", POINTER(Group)),
        ("device", c_int),
        ("ahead", c_uint32),
        ("group_peers", c_uint32),
        ("transfers", c_int * 4),
        *((name, c_int) for name in "graph nvtx grad transport".split()),
    ]


def _load(path: str) -> ctypes.CDLL:
    lib = ctypes.CDLL(path)
    for name, result, *arguments in (
        ("version", c_uint32),
        ("open", c_int, POINTER(c_void_p), c_void_p, POINTER(Model), POINTER(Options)),
        ("steps", c_int, c_void_p, c_uint64),
        ("error", c_char_p, c_void_p),
        ("loss", c_double, c_void_p),
        ("loss_mb", c_double, c_void_p, c_uint32),
        ("weight", c_void_p, c_void_p, c_uint32),
        ("bytes", c_uint64, c_void_p, c_uint32),
        ("checkpoint", c_int, c_void_p, c_char_p, c_uint32),
        ("resume", c_int, c_void_p, c_char_p, POINTER(c_uint64)),
        ("write_trace", c_int, c_void_p, c_char_p),
        ("close", None, c_void_p),
        (
            "group_open",
            c_int,
            POINTER(POINTER(Group)),
            c_void_p,
            POINTER(Launch),
            c_double,
            c_char_p,
        ),
        ("group_close", None, POINTER(Group)),
    ):
        function = getattr(lib, "pr_" + name)
        function.restype, function.argtypes = result, arguments
    return lib


lib = _load(str(prefix() / "lib" / "libpiperun.so"))


@functools.cache
def cuda() -> ctypes.CDLL:
    """libpiperun_cuda: libpiperun with the engine of devices. It uses the CUDA and the NCCL that
    `import torch` has loaded before."""
    path = os.environ.get("PIPE_CUDA_LIBRARY") or str(prefix() / "lib" / "libpiperun_cuda.so")
    try:
        with_cuda = _load(path)
    except OSError as e:
        raise ValueError(
            f"engine 'cuda' cannot load its library: {e}; build pipec where CMake finds the CUDA "
            "Toolkit and NCCL, and let PIPE_CUDA_LIBRARY name lib/libpiperun_cuda.so of the build"
        ) from None
    if with_cuda.pr_version() != lib.pr_version():
        raise ValueError(
            f"{path} has version {with_cuda.pr_version()}, and pipec {lib.pr_version()}"
        )
    with_cuda.pr_cuda_stream.restype, with_cuda.pr_cuda_stream.argtypes = c_void_p, []
    return with_cuda


TRANSPORT = ctypes.addressof(ctypes.c_char.in_dll(lib, "pr_transport"))

# SPDX-License-Identifier: MIT
"""Binds libpipec by ctypes. Only this file depends on pipe_compile.h."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p

HEADER = (0, 2)  # major and minor version of the pipe_compile.h that is declared here
SEVERITY = ("error", "warning", "note")
OK, REFUSED, NO_MEMORY, INTERNAL = range(4)


@dataclass(frozen=True)
class Diagnostic:
    """A message of the compiler.

    severity: "error" or "warning"; "note" for an element of `notes`
    code:     name of the error, for `pipec --explain`, such as "deadlock"; None: no name
    file:     None: the message has no place; line and column are then 0
    line, column: from 1; columns count bytes of UTF-8
    help:     what to do; None: no advice
    """

    severity: str
    message: str
    code: str | None = None
    file: str | None = None
    line: int = 0
    column: int = 0
    help: str | None = None
    notes: tuple[Diagnostic, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " if self.file else ""
        code = f" [{self.code}]" if self.code else ""
        return f"{place}{self.severity}: {self.message}{code}"


class ScheduleWarning(UserWarning):
    """A warning of the compiler. `Schedule.diagnostics` has the same warnings as data."""


class ScheduleError(ValueError):
    """The compiler refuses a schedule or an option. `str()` is the text that `pipec` prints.

    code, file, line, column, message, help, notes: of the first error, see `Diagnostic`
    diagnostics: all errors and warnings
    """

    def __init__(self, text: str, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__(text, diagnostics)
        first = next(d for d in diagnostics if d.severity == "error")
        self.diagnostics = diagnostics
        self.code, self.file, self.line, self.column = first.code, first.file, first.line, first.column
        self.message, self.help, self.notes = first.message, first.help, first.notes

    def __str__(self) -> str:
        return str(self.args[0])


class _Row(ctypes.Structure):
    _fields_ = [("severity", c_int), ("name", c_char_p), ("file", c_char_p), ("line", c_uint32),
                ("column", c_uint32), ("message", c_char_p), ("help", c_char_p)]


class _Program(ctypes.Structure):
    """The first members of PipeProgram (pipe_instr.h)."""

    _fields_ = [("magic", c_uint32), ("abi", c_uint32), ("hash", ctypes.c_uint64)]


def prefix() -> Path:
    """The folder of lib/libpipec.so, bin/pipec and share/pipe/stdlib: PIPE_PREFIX of the
    environment if set, else this package."""
    return Path(os.environ.get("PIPE_PREFIX") or Path(__file__).parent)


def _load() -> ctypes.CDLL:
    path = prefix() / "lib" / "libpipec.so"
    try:
        lib = ctypes.CDLL(str(path))
        number = int(lib.pipe_compile_version())
    except (OSError, AttributeError) as e:
        raise ImportError(f"pipec cannot load its library: {e}; install the package, or let "
                          "PIPE_PREFIX name a folder that pipec was built in or installed to") from None
    found = (number // 10000, number // 100 % 100)
    if found != HEADER:
        raise ImportError("pipec: {} has version {}.{}, this package is for {}.{}".format(path, *found, *HEADER))
    lib.pipe_compile_until.argtypes = [POINTER(c_void_p), c_char_p, c_char_p, c_int, POINTER(c_char_p), POINTER(c_int)]
    for name, result, *arguments in (
        ("free", None),
        ("program", POINTER(_Program)),
        ("output", c_void_p, POINTER(c_size_t)),
        ("messages", c_char_p),
        ("diagnostic", POINTER(_Row), c_uint32),
    ):
        function = getattr(lib, "pipe_compiled_" + name)
        function.restype, function.argtypes = result, [c_void_p, *arguments]
    return lib


_lib = _load()
VERSION = "{}.{}.{}".format(*HEADER, _lib.pipe_compile_version() % 100)


def _encode(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no str")
    if "\0" in text:
        raise ValueError(f"a NUL character in {text[:40]!r}")
    return text.encode("utf-8", "surrogateescape")  # as Python encodes file names


def _decode(text: bytes | None) -> str | None:
    return None if text is None else text.decode("utf-8", "replace")


def _interruptible(call: Callable[[c_int], int]) -> int:
    """Returns call(stop). If a signal handler raises, as that of Ctrl-C does, sets `stop`, which ends the call, and
    does not wait for its end.

    Python runs signal handlers in the main thread, and not while this thread is in the library: so the main thread
    waits, and another thread makes the call. A call from another thread is made as it is.
    """
    stop = c_int(0)
    if threading.current_thread() is not threading.main_thread():
        return call(stop)
    status: list[int] = []
    done = threading.Event()

    def work() -> None:
        try:
            status.append(call(stop))
        finally:
            done.set()

    try:
        try:
            threading.Thread(target=work, name="pipec").start()
        except RuntimeError:  # there are no more threads, or Python is about to exit
            return call(stop)
        done.wait()
    except BaseException:
        stop.value = 1
        raise
    return status[0]


class Compiled:
    """The result of one call of pipe_compile_until; owns it.

    Raises ScheduleError; MemoryError; RuntimeError for a bug of the compiler; in the main thread also what a signal
    handler raises, such as KeyboardInterrupt.
    """

    def __init__(self, name: str | None, text: str | None, options: list[str]) -> None:
        words = [_encode(word) for word in options]
        self._handle = c_void_p()
        file = None if name is None else _encode(name)
        source = None if text is None else _encode(text)
        option = (c_char_p * len(words))(*words)
        # The call refers to self: the handle is freed once both are over, even if the call is abandoned.
        weakref.finalize(self, _lib.pipe_compiled_free, self._handle)
        status = _interruptible(lambda stop: _lib.pipe_compile_until(
            byref(self._handle), file, source, len(words), option, byref(stop)))
        self.diagnostics = self._rows()
        if status != OK:
            said = (_decode(_lib.pipe_compiled_messages(self._handle)) or "").rstrip("\n")
            if status == REFUSED:
                raise ScheduleError(said, self.diagnostics)
            raise MemoryError(said) if status == NO_MEMORY else RuntimeError(said)

    def _rows(self) -> tuple[Diagnostic, ...]:
        rows: list[Diagnostic] = []
        while row := _lib.pipe_compiled_diagnostic(self._handle, len(rows)):
            r = row.contents
            rows.append(Diagnostic(SEVERITY[r.severity], _decode(r.message) or "", _decode(r.name),
                                   None if r.file is None else os.fsdecode(r.file), r.line, r.column,
                                   _decode(r.help)))
        all: list[Diagnostic] = []
        for d in rows:
            if d.severity == "note" and all:
                all[-1] = replace(all[-1], notes=(*all[-1].notes, d))
            else:
                all.append(d)
        return tuple(all)

    @property
    def output(self) -> str:
        n = c_size_t()
        at = _lib.pipe_compiled_output(self._handle, byref(n))
        return _decode(ctypes.string_at(at, n.value)) or ""

    @property
    def program(self) -> c_void_p | None:
        """A `const PipeProgram *` for the engine, valid as long as this object."""
        at = _lib.pipe_compiled_program(self._handle)
        return ctypes.cast(at, c_void_p) if at else None

    @property
    def hash(self) -> int | None:
        """The hash of the program: programs with equal hashes differ only in files and lines."""
        at = _lib.pipe_compiled_program(self._handle)
        return at.contents.hash if at else None

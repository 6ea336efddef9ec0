# SPDX-License-Identifier: MIT
"""pipec.compile and the schedule that it returns."""

from __future__ import annotations

import json
import operator
import os
import warnings
from collections.abc import Sequence
from ctypes import c_void_p
from functools import cached_property
from typing import Any

from ._library import Compiled, Diagnostic, ScheduleWarning


class Schedule:
    """A schedule that the compiler has proved, with all its checks and limits.

    Each property is made when it is first asked for, from the same files: keep them, and the
    working directory, as they are. Times are ns if the costs are (`json["timed"]` is 1), else the
    units of the schedule. Several threads may use one Schedule.
    """

    def __init__(self, name: str | None, text: str | None, options: list[str]) -> None:
        self._call = name, text, options
        self._proved = Compiled(name, text, [*options, "--check"])
        self._warn(self._proved.diagnostics, 4)

    def output(self, *options: str) -> str:
        """What the program pipec prints of this schedule, such as `output("--critical-path")` or
        `output("--emit=svg", "--figure=3.33in")`. Options that change the program belong to
        `pipec.compile`."""
        name, text, given = self._call
        made = Compiled(name, text, [*given, *options])
        if made.hash != self._proved.hash:
            raise RuntimeError("this is not the program that was compiled: a file has changed since "
                               f"then, or {' '.join(options)} changes the program")
        self._warn([d for d in made.diagnostics if d not in self.diagnostics], 3)
        return made.output

    @staticmethod
    def _warn(diagnostics: Sequence[Diagnostic], level: int) -> None:
        for d in diagnostics:
            warnings.warn(str(d), ScheduleWarning, stacklevel=level)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The warnings of the compile."""
        return self._proved.diagnostics

    @property
    def program(self) -> c_void_p | None:
        """A `const PipeProgram *` for the C engine (pr_open). It lives as long as this object. None:
        only lists of transfers, or a range of values, were proved."""
        return self._proved.program

    @property
    def text(self) -> str | None:
        """The schedule itself, as it was given or found; None: it was compiled from a file."""
        return self._call[1]

    @property
    def report(self) -> str:
        """What `pipec --check` prints: the proofs, the predicted times, the ranks."""
        return self._proved.output

    @cached_property
    def csv(self) -> str:
        """The ops of each rank, as PyTorch's compute_only file."""
        return self.output("--emit=csv")

    @cached_property
    def comms_csv(self) -> str:
        """The ops and the proved transfers of each rank, as PyTorch's compute_comms file."""
        return self.output("--emit=comms-csv")

    @property
    def lists(self) -> list[list[str]]:
        """The ops of each rank in order, in PyTorch's notation: "0F3" is F of stage 0, microbatch 3."""
        return [row.split(",") for row in self.csv.splitlines()]

    @property
    def placement(self) -> list[list[int]]:
        """The stages of each rank."""
        placed: list[list[int]] = [[] for _ in range(self.json["ranks"])]
        for number, stage in enumerate(self.json["stages"]):
            placed[stage["rank"]].append(number)
        return placed

    @cached_property
    def json(self) -> dict[str, Any]:
        """All that the compiler knows; section 9 of the reference (lang/spec.md) has the keys."""
        made: dict[str, Any] = json.loads(self.output("--emit=json"))
        return made

    @cached_property
    def svg(self) -> str:
        """The predicted timeline."""
        return self.output("--emit=svg")

    @cached_property
    def html(self) -> str:
        """The predicted timeline as a whole page to look around in."""
        return self.output("--emit=html")

    @cached_property
    def c(self) -> str:
        """The program as C tables."""
        return self.output("--emit=c")

    @property
    def makespan(self) -> int:
        """The predicted time of one step."""
        makespan: int = self.json["makespan"]
        return makespan

    @property
    def bubble(self) -> float:
        """The idle share of ranks times makespan, 0 to 1."""
        time = self.json["ranks"] * self.makespan
        return 1 - self.json["busy"] / time if time else 0.0

    @property
    def memory(self) -> list[int] | None:
        """The most bytes of each rank; None if neither the schedule nor a profile has sizes."""
        if not self.json["sized"]:
            return None
        return [rank["bytes"]["total"] for rank in self.json["rank"]]

    def __repr__(self) -> str:
        return f"<pipec.Schedule {self.report.partition(chr(10))[0]}>"

    def _repr_svg_(self) -> str | None:
        return self.svg if self.program else None


def compile(
    name: str | os.PathLike[str] | None = None,
    /,
    *,
    text: str | None = None,
    profile: str | os.PathLike[str] | None = None,
    memory_limit: int | str | None = None,
    options: Sequence[str] = (),
    **parameters: int,
) -> Schedule:
    """Proves a schedule: its order, its transfers, its memory, its checks and limits.

    name:         a schedule of the library, such as "1f1b", or the path of a .pipe, .csv or .json file
    text:         the schedule itself; `name` then stands in messages, and imports are looked up beside it
    profile:      a JSON file of measured costs
    memory_limit: of each rank, in bytes, or with a unit: "40GiB"
    options:      more words of pipec's command line, such as ["--channels=pair"]
    parameters:   those of the schedule, such as P=4, M=16

    Raises ScheduleError if the compiler refuses it. Warnings are ScheduleWarning of Python's
    `warnings`, and in `Schedule.diagnostics`. Other threads run meanwhile, and may compile, too.
    """
    if name is None and text is None:
        raise TypeError("compile needs the name of a schedule, or text=")
    if isinstance(options, str):
        raise TypeError(f"options is a list of words, such as [{options!r}]")
    words = list(options)
    if profile is not None:
        words.append("--profile=" + os.fsdecode(profile))
    if memory_limit is not None:
        words.append(f"--memory-limit={memory_limit}")
    for key, value in parameters.items():
        try:
            words.append(f"-D{key}={operator.index(value)}")
        except TypeError:
            raise TypeError(f"{key}={value!r}: a parameter of a schedule is an integer") from None
    return Schedule(None if name is None else os.fsdecode(name), text, words)


def check_csv(
    path: str | os.PathLike[str], /, *, text: str | None = None, channels: str = "pair"
) -> str:
    """Proves lists of PyTorch, compute_only or compute_comms, and returns the report.

    path:     a file; its name ends in .csv
    text:     the lists themselves; `path` then stands in messages
    channels: what stays in order on the network: "rank", "pair", "edge" or "tagged"
              (docs/how-to/pytorch.md)

    Raises ScheduleError if they can deadlock, or if a receive gets the tensor of another send.
    """
    path = os.fsdecode(path)
    if not path.endswith(".csv"):
        raise ValueError(f"{path}: the name of PyTorch's lists ends in .csv")
    return compile(path, text=text, options=["--channels=" + channels]).report

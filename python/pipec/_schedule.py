# SPDX-License-Identifier: MIT
"""pipec.compile and the schedule that it returns."""

from __future__ import annotations

import json
import operator
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from ctypes import c_void_p
from functools import cached_property
from typing import Any

from ._library import Compiled, Diagnostic, ScheduleWarning


class Schedule:
    """A schedule that the compiler has proved, with all its checks and limits.

    Each property is computed at its first use, from the same files: do not change the files or the
    working directory meanwhile. Times are ns if the costs are in ns (`json["timed"]` is 1), else
    the abstract units of the schedule. Several threads may use one Schedule.
    """

    def __init__(self, name: str | None, text: str | None, options: list[str]) -> None:
        self._call = name, text, options
        self._proved = Compiled(name, text, [*options, "--check"])
        self._warn(self._proved.diagnostics, 4)

    def output(self, *options: str) -> str:
        """The output of `pipec` for this schedule and these options, such as
        `output("--critical-path")` or `output("--emit=svg", "--figure=3.33in")`. Pass options that
        change the program to `pipec.compile` instead."""
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
        """A `const PipeProgram *` for the C engine (pr_open), valid as long as this object. None:
        the compile proved only lists of transfers, or a range of parameter values."""
        return self._proved.program

    @property
    def text(self) -> str | None:
        """The text of the schedule, as passed to `compile` or found by `plan` and `best`; None: it
        was compiled from a file."""
        return self._call[1]

    @property
    def report(self) -> str:
        """The output of `pipec --check`: the proofs, the predicted times, the ranks."""
        return self._proved.output

    @cached_property
    def csv(self) -> str:
        """The ops of each rank in the order that was proved, in PyTorch's compute_only format. On
        the command line, `--emit=csv` may take another order of a `tune`: the best without
        transfers."""
        try:
            return self.output("--emit=csv")
        except RuntimeError:
            rows = [row.split(",") for row in self.comms_csv.splitlines()]
            compute = re.compile(r"\d+[FBIW]\d+|\(.*")
            return "".join(",".join(filter(compute.fullmatch, row)) + "\n" for row in rows)

    @cached_property
    def comms_csv(self) -> str:
        """The ops and the proved transfers of each rank, in PyTorch's compute_comms format."""
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
        """All results of the compiler as data; lang/spec.md, section 9, documents the keys."""
        made: dict[str, Any] = json.loads(self.output("--emit=json"))
        return made

    @cached_property
    def svg(self) -> str:
        """The predicted timeline."""
        return self.output("--emit=svg")

    @cached_property
    def html(self) -> str:
        """The predicted timeline as an interactive HTML page."""
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
        """The idle share of rank time (ranks times makespan), 0 to 1."""
        time = self.json["ranks"] * self.makespan
        return 1 - self.json["busy"] / time if time else 0.0

    @property
    def memory(self) -> list[int] | None:
        """The peak bytes of each rank; None if neither the schedule nor a profile has sizes."""
        if not self.json["sized"]:
            return None
        return [rank["bytes"]["total"] for rank in self.json["rank"]]

    def __repr__(self) -> str:
        return f"<pipec.Schedule {self.report.partition(chr(10))[0]}>"

    def _repr_svg_(self) -> str | None:
        return self.svg if self.program else None


def _words(
    name: str | os.PathLike[str] | None,
    text: str | None,
    profile: str | os.PathLike[str] | None,
    memory_limit: int | str | None,
    options: Sequence[str],
) -> list[str]:
    """The words of a command line for what `compile` and `check` take, without the parameters."""
    if name is None and text is None:
        raise TypeError("give the name of a schedule, or text=")
    if isinstance(options, str):
        raise TypeError(f"options is a list of words, such as [{options!r}]")
    words = list(options)
    if profile is not None:
        words.append("--profile=" + os.fsdecode(profile))
    if memory_limit is not None:
        words.append(f"--memory-limit={memory_limit}")
    return words


def _integer(key: str, value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{key}={value!r}: a parameter of a schedule is an integer") from None


def _values(key: str, value: int | Iterable[int]) -> str:
    """The value of -D: 8, 1..1024, 1..1023:2 or 4,8,16."""
    if isinstance(value, range) and value.step > 0 and value:
        last = value[-1]
        return f"{value.start}..{last}" + (f":{value.step}" if value.step > 1 else "")
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        values = [str(_integer(key, one)) for one in value]
        if not values:
            raise ValueError(f"{key}={value!r} has no values")
        return ",".join(values)
    return str(_integer(key, value))


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

    name:         a schedule of the library, such as "1f1b", or the path of a .pipe or .csv file
    text:         the text of the schedule; `name` is then its name in messages and the place from
                  which its imports are found
    profile:      a JSON file of measured costs
    memory_limit: per rank, in bytes, or with a unit: "40GiB"
    options:      further options of the command `pipec`, such as ["--channels=pair"]
    parameters:   parameters of the schedule, such as P=4, M=16

    Raises ScheduleError if the compiler refuses the schedule. Issues warnings as ScheduleWarning
    (Python's `warnings`) and keeps them in `Schedule.diagnostics`. Releases the GIL: other threads
    run meanwhile and may compile too. Ctrl-C (KeyboardInterrupt) ends a compile of the main thread.
    Reads regular files only: pass the text of a pipe as text=.
    """
    words = _words(name, text, profile, memory_limit, options)
    for key, value in parameters.items():
        words.append(f"-D{key}={_integer(key, value)}")
    return Schedule(None if name is None else os.fsdecode(name), text, words)


def check(
    name: str | os.PathLike[str] | None = None,
    /,
    *,
    text: str | None = None,
    profile: str | os.PathLike[str] | None = None,
    memory_limit: int | str | None = None,
    options: Sequence[str] = (),
    **parameters: int | Iterable[int],
) -> str:
    """Proves a schedule for every value of its parameters, each by itself, and returns the report
    of `pipec --check`: `check("1f1b", P=8, M=range(1, 1025))`.

    parameters:   integers, ranges or lists of integers; several of them give every combination. The
                  report counts those that the schedule's `requires` excludes.

    The other arguments are those of `compile`. All processors take part. Raises ScheduleError,
    which names the first refuted combination, if one is refuted or the schedule admits none.
    """
    words = _words(name, text, profile, memory_limit, options)
    for key, value in parameters.items():
        words.append(f"-D{key}={_values(key, value)}")
    proved = Compiled(None if name is None else os.fsdecode(name), text, [*words, "--check"])
    for d in proved.diagnostics:
        warnings.warn(str(d), ScheduleWarning, stacklevel=2)
    return proved.output


def check_csv(
    path: str | os.PathLike[str], /, *, text: str | None = None, channels: str = "pair"
) -> str:
    """Proves lists of PyTorch (compute_only or compute_comms) and returns the report.

    path:     a file; its name must end in .csv
    text:     the text of the lists; `path` is then their name in messages
    channels: which transfers the network keeps in order: "rank", "pair", "edge" or "tagged"
              (docs/how-to/pytorch.md)

    Raises ScheduleError if the lists can deadlock, or if a receive can get the tensor of another
    send.
    """
    path = os.fsdecode(path)
    if not path.endswith(".csv"):
        raise ValueError(f"{path}: the name of PyTorch's lists ends in .csv")
    return compile(path, text=text, options=["--channels=" + channels]).report

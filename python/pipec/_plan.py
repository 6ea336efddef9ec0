# SPDX-License-Identifier: MIT
"""pipec.plan and pipec.best: schedules that `pipec` finds for measured costs."""

from __future__ import annotations

import operator
import os
import re
import subprocess
from collections.abc import Sequence

from ._library import Diagnostic, ScheduleError, prefix
from ._schedule import Schedule, compile

_FIRST = re.compile(r"^(?:(.*):(\d+):(\d+): )?error: (.*?)(?: \[([a-z-]+)\])?$", re.M)


def _found(words: list[str]) -> str:
    """Runs `pipec` and returns the .pipe text that it prints. Control-C stops it."""
    run = subprocess.run([prefix() / "bin" / "pipec", *words], stdin=subprocess.DEVNULL,
                         capture_output=True, encoding="utf-8", errors="surrogateescape")
    if run.returncode == 0:
        return run.stdout
    first = _FIRST.search(run.stderr)
    if first:
        file, line, column, message, code = first.groups()
        said = Diagnostic("error", message, code, file, int(line or 0), int(column or 0))
    else:
        said = Diagnostic("error", run.stderr.strip())
    raise ScheduleError(run.stderr.rstrip("\n"), (said,))


def _limited(memory_limit: int | str | None) -> list[str]:
    return [] if memory_limit is None else [f"--memory-limit={memory_limit}"]


def best(
    profile: str | os.PathLike[str],
    /,
    *names: str | os.PathLike[str],
    memory_limit: int | str | None = None,
    options: Sequence[str] = (),
    **parameters: int,
) -> Schedule:
    """Finds the schedule with the shortest step for the stages or layers of a profile.

    The candidates are the schedules of the library, or those in `names`; `best` fits their stashes
    and chunks to the memory. `Schedule.text` of the result is an ordinary schedule and says what
    was tried. The other arguments are those of `compile`; M is required.

    Raises ScheduleError if no candidate fits.
    """
    shared = [*options]
    for key, value in parameters.items():
        shared.append(f"-D{key}={operator.index(value)}")
    text = _found(["--best", *map(os.fsdecode, names), "--profile=" + os.fsdecode(profile),
                   *_limited(memory_limit), *shared])
    return compile("best.pipe", text=text, profile=profile, memory_limit=memory_limit, options=options)


def plan(
    profile: str | os.PathLike[str],
    cluster: str | os.PathLike[str],
    M: int | None = None,
    *,
    batch: int | None = None,
    memory_limit: int | str | None = None,
    options: Sequence[str] = (),
) -> Schedule:
    """Cuts the layers of a profile into stages for a cluster, with replicas and recomputation.
    `Schedule.text` of the result is the plan: an ordinary schedule with its costs, and the reasons
    for its choices.

    M: the microbatches of a step; or batch: its samples, for a profile of several variants
    options: further options of `pipec --plan`, such as ["--plan-cost=stage"]

    Raises ScheduleError if no plan fits.
    """
    text = _found(["--plan", "--profile=" + os.fsdecode(profile), "--cluster=" + os.fsdecode(cluster),
                   *(f"-D{key}={operator.index(value)}" for key, value in (("M", M), ("batch", batch))
                     if value is not None), *_limited(memory_limit), *options])
    return compile("plan.pipe", text=text, memory_limit=memory_limit)

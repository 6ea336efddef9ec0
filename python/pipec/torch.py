# SPDX-License-Identifier: MIT
"""Runs schedules in torch.distributed.pipelining; `import pipec` does not import PyTorch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.distributed.pipelining import schedules as _torch

from ._schedule import Schedule, compile

__all__ = ["PipeSchedule"]


class PipeSchedule(_torch._PipelineScheduleRuntime):
    """A schedule with the interface of PyTorch's own classes: `step(x, target=...)`, `eval(...)`.

    schedule:       a name of the library, the path of a .pipe file, or a pipec.Schedule
    stages:         the PipelineStages of this rank, of one process group, in any order
    n_microbatches: microbatches per batch
    loss_fn:        as in PyTorch's classes
    parameters:     further parameters of the schedule; P is the number of ranks of the group, and M
                    is n_microbatches
    options:        further options of PyTorch's class, such as scale_grads

    PyTorch executes exactly the transfers that pipec has proved. Raises pipec.ScheduleError if
    PyTorch cannot execute the schedule, and ValueError if ranks, stages, microbatches or placement
    differ from the schedule. Features that PyTorch ignores, such as recomputation, cause a
    pipec.ScheduleWarning. `PipeSchedule.schedule` is the pipec.Schedule.
    """

    def __init__(
        self,
        schedule: Schedule | str | os.PathLike[str],
        stages: Sequence[Any],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        *,
        parameters: Mapping[str, int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(sorted(stages, key=lambda s: s.stage_index), n_microbatches, loss_fn, **options)
        first = stages[0]
        if not isinstance(schedule, Schedule):
            own = {"P": first.group_size, "M": n_microbatches}
            schedule = compile(schedule, **{**own, **(parameters or {})})
        self.schedule = schedule
        words = [f"--torch-unshard={options.get('max_active_stages', 3)}"]
        if hasattr(_torch._ComputationType, "WAIT_SEND_F"):  # 2.15 and later
            words.append("--torch-waits")
        comms = schedule.output("--emit=comms-csv", *words)
        self._check(schedule)
        self.pipeline_order = _actions(schedule.csv)
        self._prepare_schedule_with_comms(_actions(comms), format="compute_comms")

    def _check(self, schedule: Schedule) -> None:
        """Raises ValueError if ranks, stages, microbatches or placement differ from the
        schedule."""
        first, placed = self._stages[0], schedule.placement
        for what, have, want in (
            ("ranks", first.group_size, len(placed)),
            ("stages", first.num_stages, sum(map(len, placed))),
            ("microbatches", self._n_microbatches, schedule.json["microbatches"]),
        ):
            if have != want:
                raise ValueError(f"the schedule is for {want} {what}, not {have}")
        mine = sorted(stage.stage_index for stage in self._stages)
        if mine != placed[first.group_rank]:
            raise ValueError(f"rank {first.group_rank} has the stages {mine}, but the schedule places "
                             f"{placed[first.group_rank]} there; all ranks: {placed}")


def _actions(csv: str) -> dict[int, list[Any]]:
    rows = [row.split(",") for row in csv.splitlines()]
    return {rank: [_torch._Action.from_str(op) for op in row] for rank, row in enumerate(rows)}

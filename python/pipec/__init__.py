# SPDX-License-Identifier: MIT
"""Pipeline schedules: compiled, proved, predicted and drawn.

>>> schedule = pipec.compile("v_half", P=4, M=16)
>>> print(schedule.report)
"""

import importlib as _importlib
import types as _types
import typing as _typing

from ._library import VERSION as __version__
from ._library import Diagnostic, ScheduleError, ScheduleWarning
from ._plan import best, plan
from ._schedule import Schedule, check, check_csv, compile

__all__ = ["Diagnostic", "Schedule", "ScheduleError", "ScheduleWarning", "best", "check", "check_csv", "compile", "plan"]

if _typing.TYPE_CHECKING:
    from . import engine, torch


def __getattr__(name: str) -> _types.ModuleType:
    """`pipec.torch` and `pipec.engine`, which import PyTorch, at their first use."""
    if name in ("engine", "torch"):
        return _importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


for _class in Diagnostic, Schedule, ScheduleError, ScheduleWarning:
    _class.__module__ = "pipec"  # as users name them

# SPDX-License-Identifier: MIT
"""Pipeline schedules: compiled, proved, predicted and drawn.

>>> schedule = pipec.compile("v_half", P=4, M=16)
>>> print(schedule.report)
"""

from ._library import VERSION as __version__
from ._library import Diagnostic, ScheduleError, ScheduleWarning
from ._plan import best, plan
from ._schedule import Schedule, check, check_csv, compile

__all__ = ["Diagnostic", "Schedule", "ScheduleError", "ScheduleWarning", "best", "check", "check_csv", "compile", "plan"]

for _class in Diagnostic, Schedule, ScheduleError, ScheduleWarning:
    _class.__module__ = "pipec"  # as users name them

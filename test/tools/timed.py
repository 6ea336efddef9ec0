# SPDX-License-Identifier: MIT
# lit's format of tests, and of each test the processor time of all its processes, for tally.py: how busy the machine
# is does not change it.
#
# A search for leaks doubles the time of a short process. Texts of these folders are seeds of the fuzz target of the whole
# compiler, which looks for leaks in each.
import resource

import lit.formats
import lit.Test


def spent():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


TEXTS = ("channels", "check", "csv", "emit", "format", "limit", "mistakes", "oracle", "parse", "sema", "stdlib")


class TimedTest(lit.formats.ShTest):
    def execute(self, test, lit_config):
        leaks = test.path_in_suite[0] not in TEXTS
        test.config.environment["ASAN_OPTIONS"] = f"abort_on_error=1:detect_leaks={leaks:d}"
        before = spent()
        result = super().execute(test, lit_config)
        result.addMetric("processor_s", lit.Test.RealMetricValue(spent() - before))
        return result

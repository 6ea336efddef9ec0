# SPDX-License-Identifier: MIT
# lit's format of tests, and of each test the processor time of all its processes, for tally.py: how busy the machine
# is does not change it.
import resource

import lit.formats
import lit.Test


def spent():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class TimedTest(lit.formats.ShTest):
    def execute(self, test, lit_config):
        before = spent()
        result = super().execute(test, lit_config)
        result.addMetric("processor_s", lit.Test.RealMetricValue(spent() - before))
        return result

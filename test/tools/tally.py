# SPDX-License-Identifier: MIT
# tally.py results.json: prints "PASSED FAILED SKIPPED NAME..." as counted from lit's report of each
# test (--output), with the names of the skipped, and on standard error the processor time of all. Tests
# that a filter left out are not counted; a test that was expected to fail and did has passed. Any other
# code that is not known to be good is a failure, and so is a report that is missing, unreadable or
# without tests.
import json
import sys

GOOD = {"PASS", "XFAIL", "FLAKYPASS"}
passed = failed = 0
skipped = []
seconds = 0
try:
    with open(sys.argv[1], encoding="utf-8") as f:
        for test in json.load(f)["tests"]:
            seconds += test.get("metrics", {}).get("processor_s", 0)
            if test["code"] in GOOD:
                passed += 1
            elif test["code"] == "UNSUPPORTED":
                skipped.append(test["name"].replace("pipe :: ", "").replace(" ", ""))
            elif test["code"] != "EXCLUDED":
                failed += 1
except (OSError, ValueError, KeyError) as e:
    print(f"tally.py: {sys.argv[1]}: {e}", file=sys.stderr)
    passed = 0
print(passed, failed + (passed + failed + len(skipped) == 0), len(skipped), *skipped)
print(f"  {seconds / 60:.1f} processor minutes", file=sys.stderr)

#!/bin/sh
# SPDX-License-Identifier: MIT
# The shell of the tests. It ends one that hangs, with all its processes, and nothing else does: how long a test may take is
# said here alone, and is far more than a busy machine needs.
timeout "${PIPE_TEST_LIMIT_S:-1800}" bash "$@"
status=$?
[ $status != 124 ] || echo "the test was ended after ${PIPE_TEST_LIMIT_S:-1800} s (PIPE_TEST_LIMIT_S)" >&2
exit $status

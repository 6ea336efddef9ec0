#!/bin/sh
# SPDX-License-Identifier: MIT
# shell.sh SCRIPT: the shell of the tests. It ends one that hangs, with all its processes, and nothing else does: how long a
# test may take is said here alone, and is far more than a busy machine needs.
#
# lit has bash show each command on standard error. A test that redirects a loop to a file must not find them there.
timeout "${PIPE_TEST_LIMIT_S:-1800}" bash -c 'exec {trace}>&2; BASH_XTRACEFD=$trace; . "$0"' "$1"
status=$?
[ $status != 124 ] || echo "the test was ended after ${PIPE_TEST_LIMIT_S:-1800} s (PIPE_TEST_LIMIT_S)" >&2
exit $status

#!/bin/sh
# SPDX-License-Identifier: MIT
# mpirun.sh MPIEXEC N PROGRAM...: runs N processes. Open MPI keeps a folder under
# TMPDIR, which two jobs that start at once cannot share: each has its own.
mpiexec=$1
shift
TMPDIR=$(mktemp -d)
export TMPDIR
"$mpiexec" -np "$@"
status=$?
rm -rf "$TMPDIR"
exit $status

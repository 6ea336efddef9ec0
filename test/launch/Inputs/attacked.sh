#!/bin/sh
# SPDX-License-Identifier: MIT
# attacked.sh PYTHON WHAT PROGRAM...: a rank of a run whose store is under attack (attack.py) before any rank comes to it,
# and from then on; rank 0 begins the attack, which ends with the store.
python=$1 what=$2
shift 2
if [ "${PIPE_RANK:-$OMPI_COMM_WORLD_RANK}" = 0 ]; then
  env -u PIPE_STORE_KEY "$python" "${0%/*}/attack.py" "$what" "$PIPE_STORE" "begun-$what" >/dev/null 2>&1 &
fi
while [ ! -e "begun-$what" ]; do sleep 0.02; done
exec "$@"

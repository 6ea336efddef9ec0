#!/bin/sh
# SPDX-License-Identifier: MIT
# stopped.sh SECONDS PROGRAM...: a rank of a run on MPI, of which rank 1 is stopped so many seconds after it has started.
# stopped.sh gone: waits until that process is there no more, and says so.
# stopped.sh kill-mpirun: waits until it is stopped, and kills mpirun, which has started its parent.
state() { sed -n 's/^State:[^A-Z]*\(.\).*/\1/p' "/proc/$(cat pid)/status" 2>/dev/null; }
parent() { sed -n 's/^PPid:[^0-9]*//p' "/proc/$1/status"; }
case $1 in
gone)
  until [ -z "$(state)" ] || [ "$(state)" = Z ]; do sleep 0.05; done
  rm pid
  echo rank 1 is gone
  ;;
kill-mpirun)
  until [ -s pid ] && [ "$(state)" = T ]; do sleep 0.05; done
  kill -9 "$(parent "$(parent "$(cat pid)")")"
  ;;
*)
  after=$1
  shift
  if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then
    echo $$ > pid
    if [ "$after" = 0 ]; then kill -STOP $$; else (sleep "$after"; kill -STOP $$) & fi
  fi
  exec "$@"
  ;;
esac

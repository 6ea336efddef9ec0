#!/bin/sh
# SPDX-License-Identifier: MIT
# What stands for a program of the GPT, for cases.sh itself: it says what that would. PLAY=silent: a report that names
# no instruction; PLAY=status: survivors end with another status; PLAY=other: processes, and what is by hand, come to other losses; PLAY=hang: a rank that dies leaves the others waiting;
# PLAY=slow: bench misses its aim; PLAY=old: NCCL is too old for channels; PLAY=leak: the sanitizer finds something; PLAY=twice: a graph comes to other losses. With NCCL_DEBUG NCCL says something, too.
# PLAYED: a file for the number of its process.
case $(basename "$0") in
compute-sanitizer)
  while [ ! -x "$1" ]; do shift; done
  "$@" || exit 1
  [ "$PLAY" != leak ] || { echo "========= ERROR SUMMARY: 1 error"; exit 9; }
  echo "========= ERROR SUMMARY: 0 errors"
  exit 0 ;;
python)
  case "$1 $PLAY" in "-c old") echo "ModuleNotFoundError: No module named 'torch'" >&2; exit 1 ;; "-c "*) exit 0 ;; esac
  echo "GPT-2 124M: played"
  echo "plain        100000 tokens/s  MFU 41.0 %  loss 10.9 to 7.5"
  if [ "$PLAY" = other ]; then echo "2 ranks       90000 tokens/s  losses differ by 1.0e+00: FAILED"; exit 1; fi
  if [ "$PLAY" = slow ]; then echo "aim: 0.9 of plain, or MFU 40 %: MISSED with 2 ranks"; else echo "aim: 0.9 of plain, or MFU 40 %: met"; fi
  exit 0 ;;
gpt_check_cuda)
  for how in float bf16; do echo "1 stages, $how: a second run gives the same bits"; echo "3 stages, $how: a second run gives the same bits"; done
  exit 0 ;;
gpt_profile_cuda)
  for stage in 0 1 2 3; do echo '{"F": 10, "B": 20}'; done
  exit 0 ;;
gpt_bench_cuda_*)
  if [ "$PLAY" = slow ]; then echo "= played: engine +3.00 % (aim 2 %: MISSED)"; else echo "= played: engine +1.00 % (aim 2 %: met)"; fi
  [ "$PLAY" != other ]; exit ;;
esac
case " $* " in *" --processes "*) apart=1 ;; *) apart= ;; esac
for arg; do
  if [ "$last" = --perfetto ]; then echo '}' > "$arg"; fi
  if [ "$last" = --trace ]; then echo "step 1.000 ms, bubble 10.0 %" >&2; fi
  last=$arg
done
if [ "$apart" ] && [ "$NCCL_DEBUG" ]; then # as NCCL does: what is at stake, or all of it, goes to standard output
  echo "NCCL version 2.28.9+cuda13.0"
  [ "$NCCL_DEBUG_FILE" ] || echo "host:1:1 [0] NCCL WARN played"
fi
if [ "$PLAY$apart" = old1 ]; then
  echo "gpt_cuda: open: a run with a process per rank takes NCCL 2.26 or later; this is NCCL 2.25.1" >&2
  exit 1
fi
if [ "$NCCL_LAUNCH_ORDER_IMPLICIT" = 0 ]; then
  [ "$PLAY" = silent ] || echo "gpt_cuda: open: NCCL_LAUNCH_ORDER_IMPLICIT=0: with lowering channels a step may never end" >&2
  exit 1
fi
if [ -n "$PIPE_FAULT" ]; then
  rank=$(echo "$PIPE_FAULT" | cut -d: -f2)
  [ "$PLAYED" ] && echo $$ > "$PLAYED"
  [ "$PLAY" = hang ] && sleep 4 # more than twice the deadline of cases.test
  at=' waits in 2RECV_F1 (1f1b.pipe:7:16) for 1SEND_F1 on rank 1'
  [ "$PLAY" = silent ] && at=
  code=75
  [ "$PLAY" = status ] && code=1
  echo "gpt_cuda: run: lost: the process of rank $rank has ended; rank 2$at" >&2
  echo "rank $rank was killed by signal 9" >&2
  for left in 0 1 2 3; do [ $left = "$rank" ] || echo "rank $left ended with status $code" >&2; done
  exit 137
fi
echo "loss 0 0x1.8p+1"
[ "$PLAY$apart" = other1 ] && echo "loss 1 0x1p+1"
case "$PLAY $* " in twice*" --graph "*) echo "loss 1 0x1p+1" ;; esac
exit 0

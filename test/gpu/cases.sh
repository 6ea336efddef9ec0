#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# cases.sh CASE BIN WORK: one thing to try on a device, with the programs in BIN, in the folder WORK. Exit status 0: it
# passed; 77: it cannot be tried here; else it failed. A check that fails (`try`) is told by a line "! TEXT", and the case
# goes on. Lines "! TEXT", or else "= TEXT", are for the table of run.sh.
# cases.sh --list: all of them, one a line, what matters most first, with the seconds that each may take.
# SMALL=1: of a size for a device that the CPU plays.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
list='one-process 120
processes 240
copies 150
check 120
kill 240
bench 300
torch 600
graph 120
formulas 60
peers 150
channels 150
sums 120
bf16 60
trace 60
profile 60
memcheck 300
synccheck 300
initcheck 300
racecheck 300'
if [ "${1:-}" = --list ]; then echo "$list"; exit 0; fi
[ $# = 3 ] || { echo "cases.sh: CASE BIN WORK, or --list" >&2; exit 2; }
name=$1 bin=$2 work=$3
case $'\n'$list in *$'\n'"$name "*) ;; *) echo "cases.sh: no case '$name'; --list has them" >&2; exit 2 ;; esac
mkdir -p "$work"
text=$work/text
cat "$here"/../../lang/*.md > "$text"
gpt=(--data "$text" --layers 8 --steps 6 --hash)
small=(--data "$text" --layers 4 --d 64 --steps 4 --hash)
if [ -n "${SMALL:-}" ]; then
  gpt=(--data "$text" --layers 4 --d 32 --heads 4 --seq 32 --steps 3 --hash)
  small=("${gpt[@]}")
fi
bad=0
say() { [ $bad != 0 ] || echo "= $*"; } # of a case that has not failed so far
exec 3>&1
wrong() { echo "! $*" >&3; bad=1; } # also where a check's own output goes to a file
try() { "$@" || wrong "line ${BASH_LINENO[0]}: $*"; }
fails() { ! "$@"; }
export NCCL_DEBUG_FILE=${NCCL_DEBUG_FILE:-$work/nccl.%p} # else standard output, where the losses go

# limited SECONDS PROGRAM...: for what has several processes. They are in a group of their own, and end with this script.
running=
trap '[ -z "$running" ] || kill "$running" 2> /dev/null; wait; exit 143' TERM
limited() {
  local status=0
  timeout -k 5 "$@" &
  running=$!
  wait "$running" || status=$?
  running=
  return $status
}

# GPT on 4 ranks of one process: $work/OUT of gpt_cuda_4 with these options.
train() { local out=$1; shift; try "$bin/gpt_cuda_4" "${gpt[@]}" "$@" > "$work/$out"; }
# within LIMIT FILE WHAT: are the losses in FILE those of the CPU?
within() {
  local how
  try "$bin/gpt_cpu_4" "${gpt[@]}" > "$work/want"
  if how=$("$bin/losses" "$work/want" "$work/$2" "$1"); then say "$3$how"; else wrong "$3$how"; fi
}

# The same bits on 1, 2 and 4 ranks of one process, with 4 stages on one, and however far ahead the host is; the
# losses of the engine of threads.
case_one_process() {
  train 4
  for p in 2 1 1x4; do
    [ -x "$bin/gpt_cuda_$p" ] || { say "no gpt_cuda_$p: 4 ranks only"; continue; }
    try "$bin/gpt_cuda_$p" "${gpt[@]}" > "$work/$p"
    try diff "$work/4" "$work/$p"
  done
  train ahead --ahead 1 --nvtx
  try diff "$work/4" "$work/ahead"
  within 1e-4 4 ""
}

# From a captured graph: the same bits.
case_graph() {
  train plain
  train graph --graph
  try diff "$work/plain" "$work/graph"
  say "the same bits"
}

case_bf16() {
  train low --bf16
  within 2e-2 low ""
}

# The kernel of formulas against the CPU.
case_formulas() {
  [ -x "$bin/gpu_formulas" ] || return 77
  try "$bin/gpu_formulas" > "$work/1"
  try "$bin/gpu_formulas" 20261121 > "$work/2"
  say "$(tail -n 1 "$work/1")"
}

is_whole() { tail -c 3 "$1" | grep -q '}'; }
case_trace() {
  local how
  for how in --graph ""; do
    train traced $how --trace 4 --perfetto "$work/run$how.json" 2> "$work/err"
    try is_whole "$work/run$how.json"
    try grep -q 'bubble' "$work/err"
  done
  say "$(grep -m 1 'bubble' "$work/err" || true)"
}

# Op by op and tensor by tensor against the CPU.
case_check() {
  try "$bin/gpt_check_cuda" --data "$text" --layers 3 --d 48 --heads 3 --seq 40 > "$work/checked"
  local want=4
  if [ -z "${SMALL:-}" ]; then # large tensors; many tokens, whose sums have longer strips
    want=12
    try "$bin/gpt_check_cuda" --data "$text" --layers 6 --d 256 --heads 8 --seq 128 --batch 4 >> "$work/checked"
    try "$bin/gpt_check_cuda" --data "$text" --layers 3 --d 16 --heads 1 --seq 16 --batch 525 >> "$work/checked"
  fi
  cat "$work/checked"
  try fails grep -h -e FAR -e DIFFERS "$work/checked"
  [ "$(grep -h -c 'gives the same bits' "$work/checked")" = $want ] || wrong "not all was compared"
  say "all tensors within their limits"
}

# gpt_cuda_P with a process a rank, all on one device, each a host of its own for NCCL, over sockets on the loopback:
# the bits of one process, which are in $work/one. by: what moves tensors.
by=nccl
apart() { # P options...
  local p=$1
  shift
  limited 100 "$bin/gpt_cuda_$p" "${small[@]}" --processes --device 0 --transport $by --deadline 60 "$@" > "$work/all" 2> "$work/err" ||
    { cat "$work/err"; return 1; }
  grep -E '^(loss|weights) ' "$work/all" > "$work/run" # an old NCCL says its version there, too
  diff "$work/one" "$work/run"
}

alone() { try "$bin/gpt_cuda_$1" "${small[@]}" > "$work/one"; }

case_processes() {
  for p in 2 4; do
    alone "$p"
    try apart "$p"
    say "$p processes: the bits of one"
    try apart "$p" --graph
    try apart "$p" --checksums
  done
  say "from a graph, and with headers, too"
  try apart 4 --trace 3 --perfetto "$work/run.json"
  try is_whole "$work/run.json"
  say "traced"
}

# The same by copy engines: no kernel of NCCL, and none at all for transfers. A rank that dies is named.
case_copies() {
  local how p by=peer
  for p in 2 4 channels; do
    alone "$p"
    for how in "" --graph --checksums; do
      try apart "$p" $how
    done
    say "$p: the bits of one process, from a graph and with headers, too"
  done
  PIPE_FAULT=1SEND_F3:1:2:crash try fails apart 4 > "$work/killed" 2>&1
  try grep -q "lost: the process of rank 1 has ended" "$work/killed"
  say "a rank that dies is named"
}

# Stashes on other ranks, with a process a rank in the memory of another one, and copies to the host.
case_peers() {
  local how
  for p in bpipe switched; do
    alone "$p"
    train plain
    try "$bin/gpt_cuda_$p" "${gpt[@]}" > "$work/here"
    try diff "$work/plain" "$work/here"
    try "$bin/gpt_cuda_$p" "${gpt[@]}" --graph > "$work/graph"
    try diff "$work/plain" "$work/graph"
    say "$p, one process"
    if [ -n "${SMALL:-}" ]; then continue; fi
    for how in "" --graph; do
      try apart "$p" $how
      say "$p, processes$how"
    done
  done
}

# Two replicas of each stage, in opposite directions: their gradients are added up, with a process a rank by NCCL, on
# communicators of their own. Two numbers have one sum, whoever adds them up.
case_sums() {
  local how
  try "$bin/gpt_cuda_gems" "${gpt[@]}" > "$work/here"
  try "$bin/gpt_cuda_gems" "${gpt[@]}" --graph > "$work/graph"
  try diff "$work/here" "$work/graph"
  within 1e-4 here "one process: "
  if [ -n "${SMALL:-}" ]; then return 0; fi
  alone gems
  for how in "" --graph; do
    try apart gems $how
    say "processes $how"
  done
}

# Lowering channels: a stream each, and with a process a rank a communicator each, which NCCL starts in the order of the
# host; the bits of 1F1B with one comm stream.
case_channels() {
  local how
  train plain
  try "$bin/gpt_cuda_channels" "${gpt[@]}" > "$work/here"
  try diff "$work/plain" "$work/here"
  try "$bin/gpt_cuda_channels" "${gpt[@]}" --graph > "$work/graph"
  try diff "$work/plain" "$work/graph"
  say "one process"
  if [ -n "${SMALL:-}" ]; then return 0; fi
  alone channels
  for how in "" --graph --checksums; do
    if apart channels $how; then
      say "processes $how"
    elif grep -q 'takes NCCL 2.26 or later' "$work/err"; then
      say "this NCCL is too old"
      return 77
    else
      wrong "processes $how"
    fi
  done
  PIPE_FAULT=1SEND_F3:1:2:crash try fails apart channels > "$work/killed" 2>&1
  try grep -q "lost: the process of rank 1 has ended" "$work/killed"
  NCCL_LAUNCH_ORDER_IMPLICIT=0 try fails apart channels > "$work/refused" 2>&1
  try grep -q 'NCCL_LAUNCH_ORDER_IMPLICIT=0: with lowering channels' "$work/refused"
}

# A rank dies in mid-step: the others end within the deadline, and say which instruction.
case_kill() {
  local deadline=${DEADLINE:-10} status begun took most=0 at # seconds
  begun=$SECONDS
  try limited 100 "$bin/gpt_cuda_4" "${small[@]}" --processes --device 0 --transport nccl --deadline $deadline > "$work/whole"
  local whole=$((SECONDS - begun)) # nothing happens: so long it takes to start and end
  for at in 1F3:1:2 0SEND_F2:0:1 3RECV_F1:3:2 2B4:2:0; do
    status=0 begun=$SECONDS
    PIPE_FAULT=$at:crash limited 100 "$bin/gpt_cuda_4" "${small[@]}" --processes --device 0 --transport nccl --deadline $deadline \
      > "$work/out" 2> "$work/err" || status=$?
    took=$((SECONDS - begun - whole))
    [ $took -le $most ] || most=$took
    cat "$work/err"
    if [ $status = 0 ] || [ $status = 124 ]; then wrong "$at: exit $status"; fi
    grep -q "^rank ${at: -3:1} was killed by signal 9" "$work/err" && [ "$(grep -c '^rank . ended with status 75$' "$work/err")" = 3 ] ||
      wrong "$at: not all that are left end with status 75"
    grep -q "lost: the process of rank ${at: -3:1} has ended; .*1f1b.pipe:" "$work/err" || wrong "$at: no report names an instruction"
    [ $took -le $((2 * deadline)) ] || wrong "$at: $took s more than a run to its end"
  done
  say "4 of 4 name the rank, and the instruction that waits for it, and end with status 75, at most $most s later than a run to its end (deadline $deadline s)"
}

sanitize() {
  command -v compute-sanitizer > /dev/null || return 77
  compute-sanitizer --tool "$1" --error-exitcode 9 "$bin/gpt_cuda_4" "${small[@]}" --steps 2 > "$work/log" 2>&1 ||
    { cat "$work/log"; wrong "$(grep -m 1 'ERROR SUMMARY' "$work/log" | sed 's/^=* *//')"; }
  say "$(grep -m 1 'ERROR SUMMARY' "$work/log" | sed 's/^=* *//')"
}
case_memcheck() {
  sanitize memcheck
  try compute-sanitizer --tool memcheck --leak-check full --error-exitcode 9 "$bin/gpt_check_cuda" --data "$text" --layers 3 --d 48 \
    --heads 3 --seq 40
}
case_initcheck() { sanitize initcheck; }
case_synccheck() { sanitize synccheck; }
case_racecheck() { sanitize racecheck; }

# What the engine costs over a loop by hand that follows Megatron-LM's 1F1B, on a device that is busy and on one that waits for
# the host, of one rank and with the transfers of four; what a call of NCCL costs the host; and cuBLAS alone; numbers for a
# person. A size whose losses are not those of the engine, or that misses its aim, fails the case; on the emulation nothing has
# a time.
bench_one() { # 1 or 4, options...
  local out
  out=$("$bin/gpt_bench_cuda_$1" "${@:2}") || wrong "bench $*"
  echo "$out"
  if [ -z "${SMALL:-}" ] && [[ $out = *MISSED* ]]; then wrong "$(grep MISSED <<< "$out" | sed 's/^= //' | paste -sd '|' -)"; fi
}
case_bench() {
  [ -x "$bin/gpt_bench_cuda_1" ] && [ -x "$bin/gpt_bench_cuda_4" ] || return 77
  local size big="--bf16 --layers 8 --d 1024 --heads 16 --seq 512 --batch 8" middle="--layers 8 --d 512 --heads 8 --seq 256 --batch 4"
  local tiny="--layers 1 --d 64 --heads 1 --seq 16 --batch 1" small="--bf16 --d 16 --heads 1 --seq 16 --batch 1 --rounds 1 --times 4"
  local one=("$big" "$middle" "--bf16 $middle" "$tiny" "--bf16 $tiny")
  local four=("$big" "--bf16 $middle" "--bf16 --layers 4 --d 64 --heads 1 --seq 16 --batch 1")
  [ -z "${SMALL:-}" ] || one=("--layers 1 $small") four=("--layers 4 $small")
  for size in "${one[@]}"; do bench_one 1 $size; done
  for size in "${four[@]}"; do bench_one 4 $size; done
}

# A GPT-2 in PyTorch, as a plain module and in stages, where a Python has PyTorch.
case_torch() {
  local python=${PIPE_TORCH_PYTHON:-python3} size=(--steps 200 --rows 16 --microbatches 4) why out
  local ready='import torch, pipec; assert torch.cuda.is_available(), "PyTorch finds no device"'
  [ -z "${SMALL:-}" ] || size=(--cpu --steps 4 --rows 2 --ranks 2) ready='import torch, pipec'
  export PIPE_PREFIX=$bin/.. PYTHONPATH=$here/../../python LD_LIBRARY_PATH=$bin/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  why=$("$python" -c "$ready" 2>&1 | tail -n 1) || { say "PIPE_TORCH_PYTHON=$python: $why"; return 77; }
  out=$("$python" "$here/../../examples/torch/gpt2/compare.py" "${size[@]}") || wrong "$(grep FAILED <<< "$out" | tr -s ' ' || echo compare.py)"
  echo "$out"
  if [[ $out = *MISSED* ]]; then wrong "$(grep MISSED <<< "$out")"; fi
  say "$(tail -n +2 <<< "$out" | tr -s ' ' | paste -sd '|' - | sed 's/|/ | /g')"
}

# The times of ops, as pipec reads them.
case_profile() {
  local size=(--layers 8 --d 512 --heads 8 --seq 256)
  [ -z "${SMALL:-}" ] || size=(--layers 8 --d 32 --heads 4 --seq 32 --reps 2)
  try "$bin/gpt_profile_cuda" -S 4 -M 8 "${size[@]}" > "$work/profile.json"
  try [ "$(grep -c '"F":' "$work/profile.json")" = 4 ]
  if [ -x "$bin/pipec" ]; then try "$bin/pipec" "$here/../../examples/gpt/1f1b.pipe" -D P=4 -D M=8 --profile="$work/profile.json" --check; fi
  say "$(grep -m 1 -o '"F": [0-9]*, "B": [0-9]*' "$work/profile.json" | tr -d '"') ns"
}

"case_${name//-/_}"
exit $bad

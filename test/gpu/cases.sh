#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# cases.sh CASE BIN WORK: one thing to try on a device, with the programs in BIN, in the folder WORK. Exit status 0: it
# passed; 77: it cannot be tried here; else it failed. A line "= TEXT" of its output is for the table of run.sh.
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
say() { echo "= $*"; }
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
train() { local out=$1; shift; "$bin/gpt_cuda_4" "${gpt[@]}" "$@" > "$work/$out"; }

# The same bits on 1, 2 and 4 ranks of one process, with 4 stages on one, and however far ahead the host is; the
# losses of the engine of threads.
case_one_process() {
  "$bin/gpt_cpu_4" "${gpt[@]}" > "$work/want"
  train 4
  for p in 2 1 1x4; do
    [ -x "$bin/gpt_cuda_$p" ] || { say "no gpt_cuda_$p: 4 ranks only"; continue; }
    "$bin/gpt_cuda_$p" "${gpt[@]}" > "$work/$p"
    diff "$work/4" "$work/$p"
  done
  train ahead --ahead 1 --nvtx
  diff "$work/4" "$work/ahead"
  say "$("$bin/losses" "$work/want" "$work/4" 1e-4)"
}

# From a captured graph: the same bits.
case_graph() {
  train plain
  train graph --graph
  diff "$work/plain" "$work/graph"
  say "the same bits"
}

case_bf16() {
  "$bin/gpt_cpu_4" "${gpt[@]}" > "$work/want"
  train low --bf16
  say "$("$bin/losses" "$work/want" "$work/low" 2e-2)"
}

# The kernel of formulas against the CPU.
case_formulas() {
  [ -x "$bin/gpu_formulas" ] || return 77
  "$bin/gpu_formulas" > "$work/1"
  "$bin/gpu_formulas" 20261121 > "$work/2"
  say "$(tail -n 1 "$work/1")"
}

case_trace() {
  local how
  for how in --graph ""; do
    train traced $how --trace 4 --perfetto "$work/run$how.json" 2> "$work/err"
    tail -c 3 "$work/run$how.json" | grep -q '}'
    grep -q 'bubble' "$work/err"
  done
  say "$(grep -m 1 'bubble' "$work/err")"
}

# Op by op and tensor by tensor against the CPU.
case_check() {
  "$bin/gpt_check_cuda" --data "$text" --layers 3 --d 48 --heads 3 --seq 40 > "$work/checked"
  local want=4
  if [ -z "${SMALL:-}" ]; then # large tensors; many tokens, whose sums have longer strips
    want=12
    "$bin/gpt_check_cuda" --data "$text" --layers 6 --d 256 --heads 8 --seq 128 --batch 4 >> "$work/checked"
    "$bin/gpt_check_cuda" --data "$text" --layers 3 --d 16 --heads 1 --seq 16 --batch 525 >> "$work/checked"
  fi
  cat "$work/checked"
  if grep -h -e FAR -e DIFFERS "$work/checked"; then return 1; fi
  [ "$(grep -h -c 'gives the same bits' "$work/checked")" = $want ] || { echo "not all was compared"; return 1; }
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

case_processes() {
  for p in 2 4; do
    "$bin/gpt_cuda_$p" "${small[@]}" > "$work/one"
    apart "$p" || return 1
    say "$p processes: the bits of one"
    apart "$p" --graph || return 1
    apart "$p" --checksums || return 1
  done
  say "from a graph, and with headers, too"
  apart 4 --trace 3 --perfetto "$work/run.json" || return 1
  tail -c 3 "$work/run.json" | grep -q '}'
  say "traced"
}

# The same by copy engines: no kernel of NCCL, and none at all for transfers. A rank that dies is named.
case_copies() {
  local how p by=peer
  for p in 2 4 channels; do
    "$bin/gpt_cuda_$p" "${small[@]}" > "$work/one"
    for how in "" --graph --checksums; do
      apart "$p" $how || return 1
    done
    say "$p: the bits of one process, from a graph and with headers, too"
  done
  if PIPE_FAULT=1SEND_F3:1:2:crash apart 4 > "$work/killed" 2>&1; then return 1; fi
  grep -q "lost: the process of rank 1 has ended" "$work/killed"
  say "a rank that dies is named"
}

# Stashes on other ranks, and turns: with a process a rank the memory of another one, and waits for numbers in memory.
case_peers() {
  local how
  for p in bpipe turns; do
    "$bin/gpt_cuda_$p" "${small[@]}" > "$work/one"
    train plain
    "$bin/gpt_cuda_$p" "${gpt[@]}" > "$work/here"
    diff "$work/plain" "$work/here"
    "$bin/gpt_cuda_$p" "${gpt[@]}" --graph > "$work/graph"
    diff "$work/plain" "$work/graph"
    say "$p, one process"
    if [ -n "${SMALL:-}" ]; then continue; fi
    for how in "" --graph; do
      apart "$p" $how || return 1
      say "$p, processes$how"
    done
  done
}

# Two replicas of each stage, in opposite directions: their gradients are added up, with a process a rank by NCCL, on
# communicators of their own. Two numbers have one sum, whoever adds them up.
case_sums() {
  local how
  "$bin/gpt_cuda_gems" "${gpt[@]}" > "$work/here"
  "$bin/gpt_cuda_gems" "${gpt[@]}" --graph > "$work/graph"
  diff "$work/here" "$work/graph"
  "$bin/gpt_cpu_4" "${gpt[@]}" > "$work/want"
  say "one process: $("$bin/losses" "$work/want" "$work/here" 1e-4)"
  if [ -n "${SMALL:-}" ]; then return 0; fi
  "$bin/gpt_cuda_gems" "${small[@]}" > "$work/one"
  for how in "" --graph; do
    apart gems $how || return 1
    say "processes $how"
  done
}

# Lowering channels: a stream each, and with a process a rank a communicator each, which NCCL starts in the order of the
# host; the bits of 1F1B with one comm stream.
case_channels() {
  local how
  train plain
  "$bin/gpt_cuda_channels" "${gpt[@]}" > "$work/here"
  diff "$work/plain" "$work/here"
  "$bin/gpt_cuda_channels" "${gpt[@]}" --graph > "$work/graph"
  diff "$work/plain" "$work/graph"
  say "one process"
  if [ -n "${SMALL:-}" ]; then return 0; fi
  "$bin/gpt_cuda_channels" "${small[@]}" > "$work/one"
  for how in "" --graph --checksums; do
    if ! apart channels $how; then
      grep -q 'takes NCCL 2.26 or later' "$work/err" || return 1
      say "this NCCL is too old"
      return 77
    fi
    say "processes $how"
  done
  if PIPE_FAULT=1SEND_F3:1:2:crash apart channels > "$work/killed" 2>&1; then return 1; fi
  grep -q "lost: the process of rank 1 has ended" "$work/killed"
  if NCCL_LAUNCH_ORDER_IMPLICIT=0 apart channels > "$work/refused" 2>&1; then return 1; fi
  grep -q 'NCCL_LAUNCH_ORDER_IMPLICIT=0: with lowering channels' "$work/refused"
}

# A rank dies in mid-step: the others end within the deadline, and say which instruction.
case_kill() {
  local deadline=${DEADLINE:-10} status begun took most=0 at # seconds
  begun=$SECONDS
  limited 100 "$bin/gpt_cuda_4" "${small[@]}" --processes --device 0 --transport nccl --deadline $deadline > "$work/whole"
  local whole=$((SECONDS - begun)) # nothing happens: so long it takes to start and end
  for at in 1F3:1:2 0SEND_F2:0:1 3RECV_F1:3:2 2B4:2:0; do
    status=0 begun=$SECONDS
    PIPE_FAULT=$at:crash limited 100 "$bin/gpt_cuda_4" "${small[@]}" --processes --device 0 --transport nccl --deadline $deadline \
      > "$work/out" 2> "$work/err" || status=$?
    took=$((SECONDS - begun - whole))
    [ $took -le $most ] || most=$took
    cat "$work/err"
    if [ $status = 0 ] || [ $status = 124 ]; then echo "exit $status"; return 1; fi
    if ! grep -q "^rank ${at: -3:1} was killed by signal 9" "$work/err" || [ "$(grep -c '^rank . ended with status 75$' "$work/err")" != 3 ]; then
      echo "not all that are left end with status 75"; return 1
    fi
    if ! grep -q "lost: the process of rank ${at: -3:1} has ended; .*1f1b.pipe:" "$work/err"; then echo "no report names an instruction"; return 1; fi
    if [ $took -gt $((2 * deadline)) ]; then echo "$took s more than a run to its end"; return 1; fi
  done
  say "4 of 4 name the rank, and the instruction that waits for it, and end with status 75, at most $most s later than a run to its end (deadline $deadline s)"
}

sanitize() {
  command -v compute-sanitizer > /dev/null || return 77
  compute-sanitizer --tool "$1" --error-exitcode 9 "$bin/gpt_cuda_4" "${small[@]}" --steps 2 > "$work/log" 2>&1 ||
    { cat "$work/log"; return 1; }
  say "$(grep -m 1 'ERROR SUMMARY' "$work/log" | sed 's/^=* *//')"
}
case_memcheck() {
  sanitize memcheck
  compute-sanitizer --tool memcheck --leak-check full --error-exitcode 9 "$bin/gpt_check_cuda" --data "$text" --layers 3 --d 48 \
    --heads 3 --seq 40
}
case_initcheck() { sanitize initcheck; }
case_synccheck() { sanitize synccheck; }
case_racecheck() { sanitize racecheck; }

# What the engine costs over the same callbacks, copies and events by hand, on a device that is busy and on one that waits for
# the host, of one rank and with the transfers of four; what a call of NCCL costs the host; and cuBLAS alone; numbers for a
# person. A size whose losses are not those of the engine, or that misses its aim, fails the case and hides no other; on the
# emulation nothing has a time.
bench_one() {
  local out bad=0
  out=$("$@") || bad=$?
  echo "$out"
  [ $bad != 0 ] || [ -n "${SMALL:-}" ] || case $out in *MISSED*) bad=4 ;; esac
  return $bad
}
case_bench() {
  [ -x "$bin/gpt_bench_cuda_1" ] && [ -x "$bin/gpt_bench_cuda_4" ] || return 77
  local status=0 size middle="--layers 8 --d 512 --heads 8 --seq 256 --batch 4" tiny="--layers 1 --d 64 --heads 1 --seq 16 --batch 1"
  local sizes=("--bf16 --layers 8 --d 1024 --heads 16 --seq 512 --batch 8" "$middle" "--bf16 $middle" "$tiny" "--bf16 $tiny")
  [ -z "${SMALL:-}" ] || sizes=("--bf16 --layers 1 --d 16 --heads 1 --seq 16 --batch 1 --rounds 1 --times 4")
  for size in "${sizes[@]}"; do
    bench_one "$bin/gpt_bench_cuda_1" $size || status=$?
  done
  sizes=("--bf16 --layers 8 --d 1024 --heads 16 --seq 512 --batch 8" "--bf16 $middle" "--bf16 --layers 4 --d 64 --heads 1 --seq 16 --batch 1")
  [ -z "${SMALL:-}" ] || sizes=("--bf16 --layers 4 --d 16 --heads 1 --seq 16 --batch 1 --rounds 1 --times 4")
  for size in "${sizes[@]}"; do
    bench_one "$bin/gpt_bench_cuda_4" $size || status=$?
  done
  return $status
}

# The times of ops, as pipec reads them.
case_profile() {
  local size=(--layers 8 --d 512 --heads 8 --seq 256)
  [ -z "${SMALL:-}" ] || size=(--layers 8 --d 32 --heads 4 --seq 32 --reps 2)
  "$bin/gpt_profile_cuda" -S 4 -M 8 "${size[@]}" > "$work/profile.json"
  [ "$(grep -c '"F":' "$work/profile.json")" = 4 ]
  if [ -x "$bin/pipec" ]; then "$bin/pipec" "$here/../../examples/gpt/1f1b.pipe" -D P=4 -D M=8 --profile="$work/profile.json" --check; fi
  say "$(grep -m 1 -o '"F": [0-9]*, "B": [0-9]*' "$work/profile.json" | tr -d '"') ns"
}

"case_${name//-/_}"

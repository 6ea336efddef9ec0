#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# All there is to try on a GPU, in one command. Takes no device settings and changes none.
#
#   test/gpu/run.sh [BUILD_DIR]          in a checkout: builds with CMake (default build/gpu), or takes what is built
#   test/gpu/run.sh --bundle FILE.tar.gz [BUILD_DIR]    packs what another machine needs: no re2c, Bison, CMake,
#                                        lit, BLAS or network there, but bash, a C and C++ compiler, and the CUDA
#                                        Toolkit with nvcc, cuBLAS and NCCL (CUDA_HOME, NCCL_HOME)
#   test/gpu/run.sh                      where that is unpacked: builds with nvcc, and runs
#   test/gpu/run.sh --shim               there: with the device that the CPU plays, to see that the bundle is whole
#
# The cases are cases.sh's. Results go to OUT (default gpu-results): summary.txt, the table that is also printed, and
# the output of each case. BUDGET (seconds, default 540, which fits into ten minutes) is for cases: one that no time is left for is not
# begun. CASES="kill bench" runs these alone. Exit status 0: all that was run has passed; 2: nothing could be run.
set -euo pipefail
from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
jobs=$(nproc 2>/dev/null || echo 4)
out=${OUT:-gpu-results}
[[ $out = /* ]] || out=$from/$out
here() { [[ $1 = /* ]] && echo "$1" || echo "$from/$1"; } # a path as the caller means it
fail() { echo "run.sh: $*" >&2; exit 2; }

# ---- packing ----

pack() { # FILE BUILD_DIR
  local file=$1 build=$2 to
  [ -x "$build/bin/pipec" ] || fail "$build/bin/pipec is not built"
  packed=$(mktemp -d)
  trap 'rm -rf "$packed"' EXIT
  to=$packed/pipe-gpu
  mkdir -p "$to/gen" "$to/lang" "$to/test/run"
  cp -r runtime LICENSE "$to"
  mkdir -p "$to/examples/gpt" "$to/test/gpu" "$to/test/shim"
  cp examples/gpt/*.[ch] examples/gpt/*.cu examples/gpt/*.pipe "$to/examples/gpt"
  cp -r test/gpu/*.sh test/gpu/*.c test/gpu/Inputs "$to/test/gpu"
  cp -r test/shim/*.[ch] test/shim/include test/shim/gpt "$to/test/shim"
  cp test/run/losses.c "$to/test/run"
  cp lang/*.md "$to/lang"
  for p in 4 2 1; do "$build/bin/pipec" examples/gpt/1f1b.pipe -D P=$p -D M=8 -o "$to/gen/gpt_cuda_$p.c"; done
  "$build/bin/pipec" test/gpu/Inputs/one_rank.pipe -o "$to/gen/gpt_cuda_1x4.c"
  local xxhash=/usr/include/xxhash.h
  [ -f $xxhash ] || xxhash=$(pkg-config --variable=includedir libxxhash)/xxhash.h
  cp "$xxhash" "$to/gen"
  tar -czf "$file" -C "$packed" pipe-gpu
  echo "$file: $(du -k "$file" | cut -f1) KiB; unpack it there and run pipe-gpu/test/gpu/run.sh"
}

# ---- building ----

find_nccl() { # where nccl.h is
  local dir
  for dir in "${NCCL_HOME:-}" "$cuda" /usr /usr/local /opt/nccl; do
    if [ -n "$dir" ] && [ -f "$dir/include/nccl.h" ]; then echo "$dir"; return; fi
  done
  dir=$(find / -xdev -name nccl.h -path '*/include/*' 2>/dev/null | head -n 1)
  [ -n "$dir" ] || fail "no nccl.h: set NCCL_HOME"
  dirname "$(dirname "$dir")"
}

# Compiles what is given to objects in $bin/o: compile FLAGS... -- FILES...
compile() {
  local flags=()
  while [ "$1" != -- ]; do flags+=("$1"); shift; done
  shift
  printf '%s\n' "$@" | xargs -P "$jobs" -I{} sh -c 'o=$1/o/$(echo "$2" | tr / _).o; shift 2; exec "$@" -c "$0" -o "$o"' {} "$bin" {} "${flags[@]}"
}
objects() { for f in "$@"; do echo "$bin/o/${f//\//_}.o"; done; }

build_here() { # shim: 1 or nothing
  bin=bin
  rm -rf bin && mkdir -p bin/o
  local cc=${CC:-cc} cxx=${CXX:-c++} link include=()
  local core gpt=(examples/gpt/model.c examples/gpt/config.c examples/gpt/data.c examples/gpt/sequential.c test/gpu/Inputs/blas.c)
  core=$(cd runtime && ls *.c | grep -v -e mpi -e pipe_run_main | sed 's|^|runtime/|')
  local engine device=(examples/gpt/model_cuda.cu) kernels
  engine=$(ls runtime/cuda/*.c)
  kernels=$(ls runtime/cuda/*.cu)
  local tools=(examples/gpt/group.c examples/gpt/stages_cuda.c examples/gpt/profile_rows.c)
  include=(-Iruntime -Iruntime/cuda -Iexamples/gpt -Igen -Itest/gpu/Inputs)
  local flags=(-std=c11 -D_POSIX_C_SOURCE=200809L -O2 -pthread -fno-math-errno)
  local progs='check_cuda:gpt_check_cuda profile_cuda:gpt_profile_cuda'
  if [ -n "${1:-}" ]; then # programs are gpt_shim_test with what it is to be
    include=(-Itest/shim/include -Itest/shim "${include[@]}")
    local shim=(test/shim/shim.c test/shim/shim_cuda.c test/shim/shim_nccl.c test/shim/shim_formula.c test/shim/gpt/gpt_shim_test.c)
    compile "$cc" "${flags[@]}" -O1 "${include[@]}" -- $core $engine "${gpt[@]}" "${tools[@]}" "${shim[@]}" gen/*.c examples/gpt/train.c
    local m
    for m in check train profile; do
      compile "$cc" "${flags[@]}" -O1 "${include[@]}" "-DGPT_MAIN=gpt_$m" -- examples/gpt/${m}_cuda.c
    done
    compile "$cxx" -std=c++17 -O1 "${include[@]}" -- test/shim/gpt/shim_cublas.cpp
    compile "$cxx" -x c++ -std=c++17 -O1 "${include[@]}" -- "${device[@]}"
    "$cxx" -o bin/shim $(objects $core $engine "${gpt[@]}" "${tools[@]}" "${shim[@]}" "${device[@]}" gen/gpt_cuda_4.c \
      examples/gpt/{check,train,profile}_cuda.c test/shim/gpt/shim_cublas.cpp) -lm -pthread
    local p
    for p in gpt_cuda_4:train gpt_check_cuda:check gpt_profile_cuda:profile; do
      printf '#!/bin/sh\nexec "$(dirname "$0")/shim" %s "$@"\n' ${p#*:} > bin/${p%:*}
      chmod +x bin/${p%:*}
    done
  else
    cuda=${CUDA_HOME:-}
    [ -n "$cuda" ] || for cuda in /usr/local/cuda "$(dirname "$(dirname "$(command -v nvcc || echo /x/y)")")"; do [ -x "$cuda/bin/nvcc" ] && break; done
    [ -x "$cuda/bin/nvcc" ] || fail "no nvcc: set CUDA_HOME"
    export PATH=$PATH:$cuda/bin
    local nccl arch=${ARCH:-}
    [ -n "$arch" ] || ! nvidia-smi -L > /dev/null 2>&1 || arch=-arch=native
    nccl=$(find_nccl)
    local dir=$nccl/lib
    for dir in "$nccl/lib" "$nccl/lib64" "$nccl/lib/x86_64-linux-gnu" "$nccl/lib/aarch64-linux-gnu"; do
      ls "$dir"/libnccl.so* > /dev/null 2>&1 && break
    done
    ls "$dir"/libnccl.so* > /dev/null 2>&1 || fail "no libnccl.so below $nccl: set NCCL_HOME"
    local lib
    lib=$(ls "$dir"/libnccl.so* | head -n 1)
    include+=("-isystem" "$cuda/include" "-isystem" "$nccl/include")
    compile "$cc" "${flags[@]}" "${include[@]}" -- $core $engine "${gpt[@]}" "${tools[@]}" gen/*.c examples/gpt/train.c \
      examples/gpt/{train,check,profile,bench}_cuda.c test/gpu/formulas.c
    compile "$cuda/bin/nvcc" -std=c++17 -O3 $arch -Iruntime -Iruntime/cuda -Iexamples/gpt -- "${device[@]}" $kernels
    local base
    base=$(objects $core $engine "${gpt[@]}" "${device[@]}" $kernels)
    link() { local to=$1; shift; "$cuda/bin/nvcc" -o "bin/$to" $(objects "$@") $base "$lib" -lcublas -lpthread -lm -Xlinker "-rpath=$dir" -Xlinker "-rpath=$cuda/lib64"; }
    for p in 4 2 1 1x4; do link gpt_cuda_$p examples/gpt/train_cuda.c examples/gpt/group.c gen/gpt_cuda_$p.c; done
    link gpt_check_cuda examples/gpt/check_cuda.c examples/gpt/stages_cuda.c
    link gpt_profile_cuda examples/gpt/profile_cuda.c examples/gpt/stages_cuda.c examples/gpt/profile_rows.c
    link gpu_formulas test/gpu/formulas.c
    link gpt_bench_cuda examples/gpt/bench_cuda.c gen/gpt_cuda_1.c
    "$cc" -std=c11 -isystem "$cuda/include" test/gpu/probe.c -o bin/gpu_probe -L"$cuda/lib64" -lcudart -Wl,-rpath="$cuda/lib64"
  fi
  "$cc" -o bin/gpt_cpu_4 $(objects examples/gpt/train.c gen/gpt_cuda_4.c "${gpt[@]}" $core) -lm -pthread
  "$cc" -std=c11 -O1 test/run/losses.c -o bin/losses -lm
}

build_checkout() { # BUILD_DIR
  bin=$1/bin
  [ -x /usr/local/cuda/bin/nvcc ] && export PATH=$PATH:/usr/local/cuda/bin
  if command -v cmake > /dev/null && command -v re2c > /dev/null; then
    mkdir -p "$1"
    cmake -S . -B "$1" -DCMAKE_BUILD_TYPE=Release > "$1/configure.log" 2>&1 || { tail -20 "$1/configure.log"; fail configure; }
    grep -E 'CUDA:|gpt_cuda:' "$1/configure.log" || true
    cmake --build "$1" -j "$jobs" > "$1/build.log" 2>&1 || { tail -20 "$1/build.log"; fail build; }
  else
    [ -x "$bin/gpt_cuda_4" ] || fail "no CMake or re2c here, and $bin is not built: make a bundle (--bundle) where they are"
    echo "no CMake or re2c here: $bin as it is"
  fi
}

# ---- running ----

run_all() {
  local begun=$SECONDS status=0 line name limit result took left tried=0
  mkdir -p "$out"
  : > "$out/summary.txt"
  row() { printf '%-12s %-8s %5s s  %s\n' "$@" | tee -a "$out/summary.txt"; }
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | tee -a "$out/summary.txt" || true
  while read -r name limit; do
    [ -z "${CASES:-}" ] || [[ " $CASES " == *" $name "* ]] || continue
    left=$((${BUDGET:-540} - (SECONDS - begun)))
    if [ $left -lt 5 ]; then row "$name" "no time" 0 ""; continue; fi
    [ $limit -le $left ] || limit=$left
    took=$SECONDS result=0
    timeout "$limit" bash test/gpu/cases.sh "$name" "$bin" "$out/$name" > "$out/$name.log" 2>&1 < /dev/null || result=$?
    took=$((SECONDS - took))
    line=$(sed -n 's/^= //p' "$out/$name.log" | paste -sd '|' - | sed 's/|/ | /g')
    case $result in
    0) row "$name" passed $took "$line"; tried=1 ;;
    77) row "$name" "not here" $took "$line" ;;
    124) row "$name" "TOO LONG" $took "$line"; status=1 ;;
    *) row "$name" FAILED $took "$(tail -n 1 "$out/$name.log")"; status=1 ;;
    esac
  done < <(bash test/gpu/cases.sh --list)
  echo "results: $out"
  [ $tried = 1 ] || [ $status != 0 ] || status=2
  return $status
}

case ${1:-} in
--bundle) pack "$(here "${2:?FILE.tar.gz}")" "$([ -n "${3:-}" ] && here "$3" || echo build)"; exit 0 ;;
--shim)
  [ -d gen ] || fail "--shim is for an unpacked bundle"
  build_here shim
  export SMALL=1
  CASES=${CASES:-one-process graph bf16 trace check profile}
  run_all
  exit ;;
esac
if [ -d gen ]; then build_here; else build_checkout "$([ -n "${1:-}" ] && here "$1" || echo build/gpu)"; fi
"$bin/gpu_probe" || fail "no device that works: nothing was run"
run_all

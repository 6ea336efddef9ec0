#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# All there is to try on a GPU, in one command. Takes no device settings and changes none.
#
#   test/gpu/run.sh [BUILD_DIR]          in a checkout: builds with CMake (default build/gpu), or takes what is built
#   test/gpu/run.sh --bundle FILE.tar.gz [BUILD_DIR]    packs what another machine needs: no re2c, Bison, CMake,
#                                        lit, BLAS or network there, but bash, a C and C++ compiler, and the CUDA
#                                        Toolkit with nvcc, cuBLAS and NCCL (CUDA_HOME, NCCL_HOME: found by themselves in
#                                        the usual places, and among Python's packages). WITH_NCCL=DIR: that NCCL
#                                        (include/nccl.h, lib/libnccl.so.2) goes along, too, for a machine without.
#                                        PIPE_TORCH_PYTHON there (python3): a Python with PyTorch, for the case torch
#   test/gpu/run.sh                      where that is unpacked: builds with nvcc, unless it has, and runs
#   test/gpu/run.sh --build              there: builds and runs nothing
#   test/gpu/run.sh --shim               there: with the device that the CPU plays, to see that the bundle is whole
#
# The cases are cases.sh's; each is by itself: what becomes of one, others run. OUT (default gpu-results) gets two files:
# summary.txt, the table that is also printed, and results.tar.gz, with the output of each case. Both are whole after each case.
# BUDGET (seconds; default 4200, enough for all; 570 fits into ten minutes) is for all, building too: a case that no
# time is left for is not begun, and can be run later: CASES="kill bench" runs these alone. Exit status 0: all has
# passed; 1: something has not; 2: nothing could be run; 3: what was run has passed, but there was no time for all: the
# last line says how much is enough.
set -euo pipefail
from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
jobs=$(nproc 2>/dev/null || echo 4)
ranks='4 2 1 1x4 bpipe switched channels gems' # programs: bin/gpt_cuda_*
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
  if [ -n "${WITH_NCCL:-}" ]; then
    [ -f "$WITH_NCCL/include/nccl.h" ] && [ -e "$WITH_NCCL/lib/libnccl.so.2" ] || fail "no NCCL in $WITH_NCCL"
    mkdir -p "$to/nccl/lib"
    cp -rL "$WITH_NCCL/include" "$to/nccl"
    cp -L "$WITH_NCCL/lib/libnccl.so.2" "$to/nccl/lib"
  fi
  mkdir -p "$to/examples/gpt" "$to/test/gpu" "$to/test/shim"
  cp examples/gpt/*.[ch] examples/gpt/*.cu examples/gpt/*.pipe "$to/examples/gpt"
  cp -r test/gpu/*.sh test/gpu/*.c test/gpu/Inputs "$to/test/gpu"
  cp -r test/shim/*.[ch] test/shim/include test/shim/gpt "$to/test/shim"
  cp test/run/losses.c "$to/test/run"
  cp lang/*.md "$to/lang"
  for p in 4 2 1; do "$build/bin/pipec" examples/gpt/1f1b.pipe -D P=$p -D M=8 -o "$to/gen/gpt_cuda_$p.c"; done
  "$build/bin/pipec" test/gpu/Inputs/one_rank.pipe -o "$to/gen/gpt_cuda_1x4.c"
  "$build/bin/pipec" stdlib/bpipe.pipe -D P=4 -D M=8 -o "$to/gen/gpt_cuda_bpipe.c"
  "$build/bin/pipec" examples/gpt/gems.pipe -D P=4 -D M=8 -o "$to/gen/gpt_cuda_gems.c"
  "$build/bin/pipec" test/gpu/Inputs/switched.pipe -o "$to/gen/gpt_cuda_switched.c"
  "$build/bin/pipec" test/gpu/Inputs/channels.pipe -o "$to/gen/gpt_cuda_channels.c"
  local xxhash=/usr/include/xxhash.h
  [ -f $xxhash ] || xxhash=$(pkg-config --variable=includedir libxxhash)/xxhash.h
  cp "$xxhash" "$to/gen"
  local lib # the package for Python, where PyTorch is: its libraries are for a system like this one
  mkdir -p "$to/lib" "$to/share/pipe" "$to/python" "$to/examples/torch"
  cp -r stdlib "$to/share/pipe"
  cp -r python/pipec "$to/python"
  cp -r examples/torch/gpt2 "$to/examples/torch"
  for lib in "$build/lib/libpipec.so" "$build/lib/libpiperun.so" "$(ldd "$build/lib/libpipec.so" | awk '/jansson/ { print $3 }')"; do
    cp -L "$lib" "$to/lib"
  done
  tar -czf "$file" -C "$packed" pipe-gpu
  echo "$file: $(du -k "$file" | cut -f1) KiB; unpack it there and run pipe-gpu/test/gpu/run.sh"
}

# ---- building ----

# Folders that may have a part of the Toolkit: given ones, the usual, Python's packages.
places() { # GIVEN...
  local dir
  printf '%s\n' "$@" "$PWD/nccl" "$cuda" "$cuda"/targets/*-linux /usr /usr/local /opt/nccl
  for dir in $(command -v python3 > /dev/null && python3 -c 'import site, sys; print(*site.getsitepackages(), *sys.path)' 2> /dev/null); do
    printf '%s\n' "$dir"/nvidia/*
  done
}

# have HEADER LIB GIVEN...: the first place with include/HEADER and a libLIB.so*: its include folder and the library.
have() {
  local header=$1 lib=$2 dir so
  shift 2
  while read -r dir; do
    [ -n "$dir" ] && [ -f "$dir/include/$header" ] || continue
    for so in "$dir"/lib/lib"$lib".so "$dir"/lib64/lib"$lib".so "$dir"/lib/*-linux-gnu/lib"$lib".so \
      "$dir"/lib/lib"$lib".so.* "$dir"/lib64/lib"$lib".so.* "$dir"/lib/*-linux-gnu/lib"$lib".so.*; do
      if [ -e "$so" ]; then echo "$dir/include $so"; return; fi
    done
  done < <(places "$@"; [ -z "${SEARCH:-}" ] || find / -xdev -path "*/include/$header" 2> /dev/null | sed "s|/include/$header\$||")
  return 1
}
# The same, if need be by a search of the whole disk.
find_part() { have "$@" || SEARCH=1 have "$@"; }

# Options of nvcc for the device that is there, or else for those that it may be.
find_arch() {
  local x=$bin/arch.cu
  echo '__global__ void k() {}' > "$x"
  if nvidia-smi -L > /dev/null 2>&1 && "$cuda/bin/nvcc" -arch=native -c "$x" -o "$x.o" > /dev/null 2>&1; then
    echo -arch=native
  else
    echo -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_90,code=compute_90
  fi
}

# Compiles what is given to objects in $bin/o: compile FLAGS... -- FILES...
compile() {
  local flags=()
  while [ "$1" != -- ]; do flags+=("$1"); shift; done
  shift
  printf '%s\n' "$@" | xargs -P "$jobs" -I{} sh -c 'o=$1/o/$(echo "$2" | tr / _).o; shift 2; exec "$@" -c "$0" -o "$o"' {} "$bin" {} "${flags[@]}"
}
objects() { for f in "$@"; do echo "$bin/o/${f//\//_}.o"; done; }

# Where the Toolkit is, and its programs in PATH: nvcc, and compute-sanitizer, which is elsewhere in some.
find_cuda() {
  local dir
  cuda=${CUDA_HOME:-}
  [ -n "$cuda" ] || for cuda in /usr/local/cuda "$(dirname "$(dirname "$(command -v nvcc || echo /x/y)")")"; do [ -x "$cuda/bin/nvcc" ] && break; done
  for dir in "$cuda/bin" "$cuda/compute-sanitizer"; do
    if [ -d "$dir" ]; then export PATH=$PATH:$dir; fi
  done
}

build_here() { # shim: 1 or nothing
  bin=bin
  local stamp=bin/built${1:+-shim}
  if [ -f "$stamp" ] && [ -z "$(find runtime examples test gen -newer "$stamp" -type f | head -n 1)" ]; then
    echo "bin is built"
    return
  fi
  rm -rf bin && mkdir -p bin/o
  local cc=${CC:-cc} cxx=${CXX:-c++} include p m
  local core gpt=(examples/gpt/model.c examples/gpt/config.c examples/gpt/data.c examples/gpt/sequential.c examples/gpt/blas.c test/gpu/Inputs/blas.c)
  local engine device=(examples/gpt/model_cuda.cu) kernels
  core=() include=(-Iexamples/gpt -Igen -Itest/gpu/Inputs) engine=(runtime/transport/cuda/*.c) kernels=(runtime/transport/cuda/*.cu)
  while read -r m; do # the rooms of runtime/
    include+=("-Iruntime/$m")
    case $m in transport/mpi | transport/cuda | include) continue ;; esac
    for p in runtime/"$m"/*.c; do [[ $p = *_main.c ]] || core+=("$p"); done
  done < <(sed -n 's/^\([a-z][^ ]*\).*/\1/p' runtime/ROOMS)
  local tools=(examples/gpt/group.c examples/gpt/stages_cuda.c examples/gpt/profile_rows.c)
  local flags=(-std=c11 -D_POSIX_C_SOURCE=200809L -O2 -fPIC -pthread -fno-math-errno)
  local base=("${core[@]}" "${engine[@]}" "${gpt[@]}" "${device[@]}")
  if [ -n "${1:-}" ]; then # programs are gpt_shim_test with what it is to be
    include=(-Itest/shim/include -Itest/shim "${include[@]}")
    local shim=(test/shim/shim.c test/shim/shim_cuda.c test/shim/shim_nccl.c test/shim/shim_formula.c)
    compile "$cc" "${flags[@]}" -O1 "${include[@]}" -- "${core[@]}" "${engine[@]}" "${gpt[@]}" "${tools[@]}" "${shim[@]}" \
      test/shim/gpt/gpt_shim_test.c gen/*.c examples/gpt/train.c examples/gpt/hand_cuda.c
    for m in check train profile bench; do
      compile "$cc" "${flags[@]}" -O1 "${include[@]}" "-DGPT_MAIN=gpt_$m" -- "examples/gpt/${m}_cuda.c"
    done
    compile "$cxx" -std=c++17 -O1 "${include[@]}" -- test/shim/gpt/shim_cublas.cpp
    compile "$cxx" -x c++ -std=c++17 -O1 "${include[@]}" -- "${device[@]}"
    base+=("${tools[@]}" "${shim[@]}" test/shim/gpt/gpt_shim_test.c test/shim/gpt/shim_cublas.cpp examples/gpt/{check,train,profile,bench,hand}_cuda.c)
    for p in $ranks; do
      "$cxx" -o "bin/shim_$p" $(objects "${base[@]}" "gen/gpt_cuda_$p.c") -lm -pthread
      printf '#!/bin/sh\nexec "$(dirname "$0")/shim_%s" train "$@"\n' "$p" > "bin/gpt_cuda_$p"
    done
    for p in check profile; do
      printf '#!/bin/sh\nexec "$(dirname "$0")/shim_1" %s "$@"\n' "$p" > "bin/gpt_${p}_cuda"
    done
    for p in 1 4; do printf '#!/bin/sh\nexec "$(dirname "$0")/shim_%s" bench "$@"\n' "$p" > "bin/gpt_bench_cuda_$p"; done
    chmod +x bin/gpt_*
  else
    [ -x "$cuda/bin/nvcc" ] || fail "no nvcc: set CUDA_HOME"
    local arch part nccl blas rt dir rpath=()
    read -ra arch <<< "${ARCH:-$(find_arch)}"
    part=$(find_part nccl.h nccl "${NCCL_HOME:-}") || fail "no NCCL (include/nccl.h, lib/libnccl.so*): set NCCL_HOME"
    read -r dir nccl <<< "$part"
    include+=(-isystem "$dir")
    part=$(find_part cublas_v2.h cublas "${CUBLAS_HOME:-}") || fail "no cuBLAS: set CUBLAS_HOME"
    read -r dir blas <<< "$part"
    include+=(-isystem "$dir")
    part=$(find_part cuda_runtime_api.h cudart) || fail "no CUDA runtime: set CUDA_HOME"
    read -r dir rt <<< "$part"
    include+=(-isystem "$dir")
    for p in "$nccl" "$blas" "$rt"; do rpath+=("-Wl,-rpath=$(dirname "$p")"); done
    echo "$("$cuda/bin/nvcc" --version | tail -n 1); ${arch[*]}; $nccl; $blas"
    compile "$cc" "${flags[@]}" "${include[@]}" -- "${core[@]}" "${engine[@]}" "${gpt[@]}" "${tools[@]}" gen/*.c examples/gpt/train.c \
      examples/gpt/{train,check,profile,bench,hand}_cuda.c test/gpu/formulas.c
    compile "$cuda/bin/nvcc" -std=c++17 -O3 -Xcompiler -fPIC "${arch[@]}" "${include[@]//-isystem/-I}" -- "${device[@]}" "${kernels[@]}"
    link() { local to=$1; shift; "$cxx" -o "bin/$to" $(objects "$@" "${base[@]}" "${kernels[@]}") "$nccl" "$blas" "$rt" "${rpath[@]}" -lpthread -ldl -lm; }
    for p in $ranks; do link "gpt_cuda_$p" examples/gpt/train_cuda.c examples/gpt/group.c "gen/gpt_cuda_$p.c"; done
    link gpt_check_cuda examples/gpt/check_cuda.c examples/gpt/stages_cuda.c
    link gpt_profile_cuda examples/gpt/profile_cuda.c examples/gpt/stages_cuda.c examples/gpt/profile_rows.c
    link gpu_formulas test/gpu/formulas.c
    for p in 1 4; do link "gpt_bench_cuda_$p" examples/gpt/bench_cuda.c examples/gpt/hand_cuda.c examples/gpt/stages_cuda.c "gen/gpt_cuda_$p.c"; done
    "$cxx" -shared -o lib/libpiperun_cuda.so $(objects "${core[@]}" "${engine[@]}" "${kernels[@]}") "$nccl" "$rt" "${rpath[@]}" \
      -lpthread -ldl -lm # for Python
    "$cc" -std=c11 "${include[@]}" test/gpu/probe.c -o bin/gpu_probe "$rt" "${rpath[@]}"
  fi
  "$cc" -o bin/gpt_cpu_4 $(objects examples/gpt/train.c gen/gpt_cuda_4.c "${gpt[@]}" "${core[@]}") -lm -pthread
  "$cc" -std=c11 -O1 test/run/losses.c -o bin/losses -lm
  touch "$stamp"
}

build_checkout() { # BUILD_DIR
  bin=$1/bin
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
  local status=0 line name limit result took left tried=0 missed=0 need=$SECONDS cut
  mkdir -p "$out"
  : > "$out/summary.txt"
  work=$(mktemp -d)
  packed=$work.tar.gz
  trap 'rm -rf "$work" "$packed"' EXIT
  told() { sed -n "s/^$1 //p" "$work/$name.log" | paste -sd '|' - | sed 's/|/ | /g'; }
  row() { printf '%-12s %-8s %5s s  %s\n' "$@" | tee -a "$out/summary.txt"; }
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | tee -a "$out/summary.txt" || true
  while read -r name limit; do
    [ -z "${CASES:-}" ] || [[ " $CASES " == *" $name "* ]] || continue
    left=$((${BUDGET:-4200} - SECONDS)) cut= # the script began at 0
    need=$((need + limit))
    if [ $left -lt 5 ]; then row "$name" "no time" 0 ""; missed=$((missed + 1)); continue; fi
    [ $limit -le $left ] || limit=$left cut=1
    took=$SECONDS result=0
    timeout -k 10 "$limit" bash test/gpu/cases.sh "$name" "$bin" "$work/$name" > "$work/$name.log" 2>&1 < /dev/null || result=$?
    took=$((SECONDS - took))
    line=$(told =)
    case $result in
    0) row "$name" passed $took "$line"; tried=1 ;;
    77) row "$name" "not here" $took "$line" ;;
    124 | 137) if [ -n "$cut" ]; then row "$name" "no time" $took ""; missed=$((missed + 1)); continue; fi
      row "$name" "TOO LONG" $took "$line"; status=1 ;;
    *) line=$(told !)
      row "$name" FAILED $took "${line:-$(tail -n 1 "$work/$name.log")}"; status=1 ;;
    esac
    tar -czf "$packed" -C "$work" --exclude=text . && mv "$packed" "$out/results.tar.gz"
  done < <(bash test/gpu/cases.sh --list)
  echo "results: $out"
  if [ $missed != 0 ]; then echo "$missed cases were not run to their ends: BUDGET=$need is enough for all"; fi
  [ $missed = 0 ] || [ $status != 0 ] || status=3
  [ $tried = 1 ] || [ $status != 0 ] || status=2
  return $status
}

case ${1:-} in
--bundle)
  [ -n "${2:-}" ] || fail "--bundle needs FILE.tar.gz"
  pack "$(here "$2")" "$([ -n "${3:-}" ] && here "$3" || echo build)"
  exit 0 ;;
--shim)
  [ -d gen ] || fail "--shim is for an unpacked bundle"
  build_here shim
  export SMALL=1
  CASES=${CASES:-one-process peers channels sums check graph bf16 trace profile bench torch}
  run_all
  exit ;;
--build)
  [ -d gen ] || fail "--build is for an unpacked bundle"
  find_cuda
  build_here
  exit ;;
esac
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
find_cuda
if [ -d gen ]; then build_here; else build_checkout "$([ -n "${1:-}" ] && here "$1" || echo build/gpu)"; fi
"$bin/gpu_probe" || fail "no device that works: nothing was run"
run_all

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# All there is to try on a GPU, in one command: run.sh [BUILD_DIR]. Builds, runs the tests that ask for a device
# (parity, graphs, a process per rank, a rank that is killed, compute-sanitizer where it is installed), then the
# numbers: what the engine costs over the same callbacks by hand, and what cuBLAS reaches. Takes no device settings
# and changes none. Exit status 0: all passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build/gpu}
[ -x /usr/local/cuda/bin/nvcc ] && export PATH=$PATH:/usr/local/cuda/bin
mkdir -p "$(dirname "$build")"
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release >"$build.configure.log" 2>&1 || { tail -20 "$build.configure.log"; exit 1; }
grep -E 'CUDA:|gpt_cuda:' "$build.configure.log" || true
cmake --build "$build" -j "$(nproc)" >"$build.build.log" 2>&1 || { tail -20 "$build.build.log"; exit 1; }
if ! "$build/bin/gpu_probe"; then
  echo "run.sh: no device that works, or no CUDA Toolkit with NCCL: nothing was run" >&2
  exit 2
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || true
status=0
lit=$(sed -n 's/^LIT:FILEPATH=//p' "$build/CMakeCache.txt")
python3 "$lit" -v "$build/test/gpu" || status=1
for how in "" --bf16; do
  "$build/bin/gpt_bench_cuda" --layers 8 --d 512 --heads 8 --seq 256 --batch 4 $how || status=1
  "$build/bin/gpt_bench_cuda" --layers 8 --d 1024 --heads 16 --seq 512 --batch 8 $how || status=1
done
exit $status

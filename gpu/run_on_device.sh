#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything about devices on a machine with a GPU: the tests, under compute-sanitizer where that works, and the measurements.
#
#   gpu/run_on_device.sh                build here, run here; results in perf/results/gpu-<device>.txt
#   gpu/run_on_device.sh pack DIR       build here, and put what a bare machine needs into DIR (60 MB at most)
#   gpu/run_on_device.sh run DIR [OUT]  run what is in DIR; results in OUT (a folder)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

pack() {
  local dir=$1 build=$root/build/device
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE='-O2 -DNDEBUG' -DTUTTI_BUILD_TESTS=ON \
    -DTUTTI_MPI=OFF >/dev/null
  cmake --build "$build" -j"${TUTTI_JOBS:-$(nproc)}" --target gpu_test tutti_fake_cuda tutti_fake_nccl tutti_fake_oneccl gpu-perf gpu_overlap gpu_ring_all_reduce gpu_train gpu_share_job tutti-run
  rm -rf "$dir"
  mkdir -p "$dir/bin" "$dir/lib" "$dir/data"
  cp "$build"/tests/gpu_{test,share_job} "$build"/bin/gpu-perf "$build"/bin/tutti-run "$build"/examples/bin/gpu_{overlap,ring_all_reduce,train} "$dir/bin"
  cp "$build"/gpu/libtutti_fake_{cuda,nccl,oneccl}.so "$dir/lib"
  cp "$build"/gpu/libtutti_level_zero_driver.so "$dir/lib" 2>/dev/null || true   # where Level Zero's headers are
  cp "$root/examples/data/digits.csv.gz" "$dir/data"
  # What these are linked with, the C library aside.
  ldd "$dir"/bin/* "$dir"/lib/*.so | awk '$3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' | while read -r library; do cp -L "$library" "$dir/lib"; done
  strip "$dir"/bin/* 2>/dev/null || true
  # NCCL and the sanitizer are not packed: they are looked for there.
  cp "${BASH_SOURCE[0]}" "$dir"
  du -sh "$dir"
}

section() { printf '\n## %s\n\n' "$*"; }
# A step that may fail: what it said, and how it ended, are results too.
step() {
  local name=$1 limit=$2
  shift 2
  local code=0
  timeout -k 10 "$limit" "$@" >"$out/$name.log" 2>&1 || code=$?
  tail -n "${lines:-40}" "$out/$name.log"
  printf '[%s: exit code %s]\n' "$name" "$code"
}

run() {
  local dir=$1
  out=${2:-$dir/results}
  mkdir -p "$out"
  export LD_LIBRARY_PATH=$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} TUTTI_FAKES_DIR=$dir/lib TUTTI_TIMEOUT=${TUTTI_TIMEOUT:-60}
  local perf=$dir/bin/gpu-perf

  section "1. The machine"
  uname -a
  grep -m1 'model name' /proc/cpuinfo || true
  nproc
  dmesg 2>/dev/null | grep -im1 -E 'gvisor|firecracker' || true
  nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.current,pcie.link.width.current,memory.total,compute_mode --format=csv || true
  pgrep -fa nvidia-cuda-mps || echo 'no MPS'
  ldconfig -p | grep -E 'libnccl|libcuda\.so' || echo 'neither libcuda nor libnccl in the linker cache'

  section "Tests, on the emulated device, the stand-ins, and the GPU"
  lines=6 step tests 240 "$dir/bin/gpu_test" --no-intro
  lines=6 step tests-epoll 240 env TUTTI_LOOP=epoll "$dir/bin/gpu_test" --no-intro
  if command -v compute-sanitizer >/dev/null; then
    lines=12 step sanitizer 200 compute-sanitizer --tool memcheck --error-exitcode 9 "$dir/bin/gpu_test" --no-intro '--source-file=*device_communicator_test*'
  else
    echo 'compute-sanitizer is not here: not run under it'
  fi

  section "2, 3, 4, 7. Latency, park and wake, copies, the loop's absences, NCCL (one rank)"
  step perf-1 120 "$perf" --device cuda
  section "Three runs more of the latencies"
  for i in 1 2 3; do lines=6 step "perf-latency-$i" 120 "$perf" --device cuda --rounds 5000; done
  section "9. One GPU, ranks as threads: one_device and staged"
  for ranks in 2 4; do step "perf-threads-$ranks" 120 "$perf" --device cuda --ranks "$ranks"; done
  section "5. CUDA IPC: ranks as processes reduce on the GPU that they share"
  for ranks in 2 3; do lines=6 step "share-$ranks" 120 "$dir/bin/tutti-run" -n "$ranks" "$dir/bin/gpu_share_job" shared; done
  section "One GPU, ranks as processes: one_device, where that works, and staged"
  for ranks in 2 4; do step "perf-processes-$ranks" 120 "$dir/bin/tutti-run" -n "$ranks" "$perf" --device cuda; done
  section "Chunks of the staged way"
  for chunk in 131072 262144 524288 1048576 2097152; do
    printf 'TUTTI_GPU_CHUNK=%s\n' "$chunk"
    lines=100 step "perf-chunk-$chunk" 120 env TUTTI_GPU_CHUNK="$chunk" "$perf" --device cuda --ranks 2 | grep -E 'staged, 64|exit code' || true
  done

  section "Examples"
  for ranks in 1 2; do
    lines=4 step "ring-$ranks" 60 "$dir/bin/tutti-run" -n "$ranks" "$dir/bin/gpu_ring_all_reduce" --device cuda
    lines=6 step "overlap-$ranks" 60 "$dir/bin/tutti-run" -n "$ranks" "$dir/bin/gpu_overlap" --device cuda --trace "$out/overlap-$ranks.json"
    lines=4 step "train-$ranks" 60 env TUTTI_EXAMPLE_DATA="$dir/data" "$dir/bin/tutti-run" -n "$ranks" "$dir/bin/gpu_train" --device cuda --epochs 5
  done
}

case ${1:-all} in
  pack) pack "${2:?a folder}" ;;
  run) run "${2:?the folder that was packed}" "${3:-}" ;;
  all)
    pack "$root/build/device/pack"
    mkdir -p "$root/perf/results"
    device=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1 | tr ' ' '-')
    run "$root/build/device/pack" | tee "$root/perf/results/gpu-${device:-none}.txt"
    ;;
  *)
    sed -n '3,8p' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything about devices on a machine with a GPU: the measurements, and the tests, under compute-sanitizer where that works.
#
#   gpu/run_on_device.sh                           build here, run here; results in perf/results/gpu-<device>.txt
#   gpu/run_on_device.sh pack DIR                  build here, and put what a bare machine needs into DIR (60 MB at most)
#   gpu/run_on_device.sh run DIR [OUT [GROUP...]]  run what is in DIR; OUT/GROUP.log has all that was said
#   gpu/run_on_device.sh rehearse DIR [OUT [...]]  the same on stand-ins for libcuda and libnccl: its figures mean nothing
#
# Groups, each of ten minutes at most, the most valuable first, and what they answer:
#   machine    which machine and versions, NCCL, MPS; whether the GPU opens
#   perf       one process: what reaching a stream, parking, calls, gates, copies, reductions on the GPU and NCCL take
#   processes  CUDA IPC, ranks as processes on one GPU, NCCL's by NCCL_HOSTID; all of it under MPS, too
#   tests      every test of devices on the GPU, on both loops
#   sanitize   collectives, streams and conversions under compute-sanitizer
#   examples   gpu_ring_all_reduce, gpu_overlap, gpu_train with and without overlap
set -euo pipefail
groups=(machine perf processes tests sanitize examples)

pack() {
  local dir=$1 root build
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  build=$root/build/device
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE='-O2 -DNDEBUG -Wno-error=array-bounds' -DTUTTI_BUILD_TESTS=ON \
    -DTUTTI_MPI=OFF -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=14 >/dev/null
  cmake --build "$build" -j"${TUTTI_JOBS:-$(nproc)}" --target gpu_test tutti_fake_cuda tutti_fake_nccl tutti_fake_oneccl gpu-perf gpu_overlap \
    gpu_ring_all_reduce gpu_train gpu_share_job tutti-run example_native_kernels
  rm -rf "$dir"
  mkdir -p "$dir/bin" "$dir/lib" "$dir/data"
  cp "$build"/tests/gpu_{test,share_job} "$build"/bin/gpu-perf "$build"/bin/tutti-run "$build"/examples/bin/gpu_{overlap,ring_all_reduce,train} "$dir/bin"
  cp "$build"/tests/gpu/fakes/libtutti_fake_{cuda,nccl,oneccl}.so "$build"/tests/libexample_native_kernels.so "$dir/lib"
  cp "$build"/tests/gpu/fakes/libtutti_level_zero_driver.so "$dir/lib" 2>/dev/null || true   # where Level Zero's headers are
  cp "$root/examples/data/digits.csv.gz" "$dir/data"
  [[ -z ${TUTTI_MNIST_DIR:-} ]] || cp -rL "$TUTTI_MNIST_DIR" "$dir/data/mnist"
  # What these are linked with, the C library aside. NCCL and the sanitizer are not packed: they are looked for there.
  ldd "$dir"/bin/* "$dir"/lib/*.so | awk '$3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' | while read -r library; do cp -L "$library" "$dir/lib"; done
  strip "$dir"/bin/* "$dir"/lib/libtutti_* 2>/dev/null || true
  cp "${BASH_SOURCE[0]}" "$dir"
  du -sh "$dir"
}

# ---- what is on the machine ----

known_libraries() { ldconfig -p | grep -E "$1" || true; }
# Where the linker does not find libcuda: a driver that is mounted into the container.
find_cuda() {
  [[ -z ${TUTTI_CUDA_LIBRARY:-} && -z $(known_libraries 'libcuda\.so\.1') ]] || return 0
  local folder
  for folder in /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib64 /usr/lib/x86_64-linux-gnu /usr/local/cuda/compat; do
    [[ -e $folder/libcuda.so.1 ]] || continue
    libraries+=:$folder   # for what libcuda opens itself
    return 0
  done
}
# Where the linker does not find NCCL: the one that comes with PyTorch.
find_nccl() {
  [[ -z ${TUTTI_NCCL_LIBRARY:-} && -z $(known_libraries 'libnccl\.so\.2') ]] || return 0
  local found
  found=$(python3 -c 'import glob, sys
print(next(f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib/libnccl.so.2")))' 2>/dev/null) || return 0
  export TUTTI_NCCL_LIBRARY=$found
}
find_program() {  # NAME FOLDER...
  local candidate name=$1
  shift
  for candidate in "$(command -v "$name" || true)" "${@/%//$name}"; do
    [[ ! -x $candidate ]] || { printf '%s\n' "$candidate"; return 0; }
  done
}
find_sanitizer() { find_program compute-sanitizer /usr/local/cuda*/bin /usr/local/cuda*/compute-sanitizer; }

# ---- steps ----

section() { printf '\n## %s%s\n\n' "$*" "$rehearsal" | tee -a "$log"; }
# step NAME SECONDS LINES COMMAND...: may fail; the group's log has what it said, and so has the console, the last LINES of it.
step() {
  local name=$1 limit=$2 lines=$3 code=0 begin=$SECONDS
  shift 3
  printf '$ %s\n' "${*//$dir/.}" >>"$log"
  # These libraries for our programs alone: others have their own.
  LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} timeout -k 10 "$limit" "$@" >"$out/.step" 2>&1 || code=$?
  cat "$out/.step" >>"$log"
  tail -n "$lines" "$out/.step"
  printf '[%s: exit code %s, %s s]\n' "$name" "$code" "$((SECONDS - begin))" | tee -a "$log"
  rm -f "$out/.step"
  [[ $code == 0 ]] || failed+=("$name")
}
launch() {  # launch NAME SECONDS LINES RANKS PROGRAM...
  local name=$1 limit=$2 lines=$3 ranks=$4
  shift 4
  step "$name" "$limit" "$lines" env TUTTI_TIMEOUT=$((limit - 8)) "$dir/bin/tutti-run" -n "$ranks" "$@"
}
perf() {  # perf NAME SECONDS LINES OPTIONS...
  local name=$1 limit=$2 lines=$3
  shift 3
  step "$name" "$limit" "$lines" env TUTTI_TIMEOUT=$((limit - 8)) "$dir/bin/gpu-perf" --device cuda "$@" "${small[@]}"
}

# ---- groups; the numbers are those of the list of what a first run on a GPU has to answer ----

machine() {
  section '1. The machine'
  {
    uname -a
    grep -m1 'model name' /proc/cpuinfo || true
    echo "$(nproc) processors, $(awk '/MemTotal/ {print int($2 / 1048576)}' /proc/meminfo) GiB"
    printf 'in the log of the kernel: %s\n' "$(dmesg 2>/dev/null | grep -ioE 'gvisor|firecracker' | sort -u | xargs)"
    nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.current,pcie.link.width.current,memory.total,compute_mode --format=csv || true
    printf 'libraries: %s\nNCCL: %s\n' "$libraries" "${TUTTI_NCCL_LIBRARY:-as the linker finds it}"
    printf 'the linker knows:\n%s\n' "$(known_libraries 'libnccl|libcuda\.so')"
    printf 'compute-sanitizer: %s\n' "$(find_sanitizer)"
  } 2>&1 | tee -a "$log"
  section '6. MPS, and the NCCL of PyTorch'
  { pgrep -fa nvidia-cuda-mps || echo 'no MPS'; } | tee -a "$log"
  [[ -n $rehearsal ]] || timeout 90 python3 -c 'import torch; print("PyTorch", torch.__version__, "with NCCL", torch.cuda.nccl.version())' 2>&1 |
    tail -1 | tee -a "$log" || true
  section 'Does the GPU open?'
  step opens 60 8 "$dir/bin/gpu_test" --no-intro '--test-case=a GPU is here*,every collective with the NCCL that is here'
  launch smoke 60 4 1 "$dir/bin/gpu_ring_all_reduce" --device cuda
}

perf_group() {
  section '2, 3, 4, 7, 8. Reaching a stream, park and wake, copies, absences of the loop, NCCL, gates, calls (one rank)'
  # One by one: what fails, or stands still, costs the others nothing.
  for part in latency park copies all_reduce away nccl gates calls; do perf "$part" 30 30 --only "$part"; done
  section '2. Three runs more of the latencies'
  for i in 1 2 3; do perf "latency-$i" 20 8 --only latency; done
  section '9. One GPU, ranks as threads: one_device and staged'
  for ranks in 2 4; do perf "threads-$ranks" 50 20 --ranks "$ranks" --only all_reduce,away; done
  section 'Chunks of the staged way'
  for chunk in 524288 1048576 2097152 4194304 8388608; do
    TUTTI_GPU_CHUNK=$chunk perf "chunk-$chunk" 20 14 --ranks 2 --only all_reduce "${middle[@]}"
  done
}

# Two processes of NCCL on one GPU take each other for ranks of other hosts.
each_its_host=(env NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MAX_CTAS=1 bash -c 'NCCL_HOSTID=rank$RANK exec "$@"' -)

processes() {
  section '5. CUDA IPC: ranks as processes reduce on the GPU that they share'
  # Without MPS, processes stage.
  local shared=staged
  [[ -z $rehearsal ]] && ! pgrep -x nvidia-cuda-mps >/dev/null || shared=shared
  for ranks in 2 3; do launch "share-$ranks" 60 6 "$ranks" "$dir/bin/gpu_share_job" "$shared"; done
  section 'One GPU, ranks as processes: one_device, where that works, and staged'
  for ranks in 2 4; do launch "processes-$ranks" 90 20 "$ranks" "$dir/bin/gpu-perf" --device cuda --only all_reduce,away "${middle[@]}"; done
  section '6. NCCL with several ranks on one GPU, which it takes for ranks of several hosts'
  if [[ -n $rehearsal ]]; then
    echo 'not rehearsed: the ranks of the stand-in for NCCL are of one process' | tee -a "$log"
    return
  fi
  for ranks in 2 4; do
    launch "nccl-$ranks" 60 17 "$ranks" "${each_its_host[@]}" "$dir/bin/gpu-perf" --device cuda --only nccl --largest 16
    launch "nccl-collectives-$ranks" 60 4 "$ranks" "${each_its_host[@]}" "$dir/bin/gpu_share_job" nccl
  done
  section 'A rank is killed in the middle of an all_reduce by NCCL'
  # The killed rank has no good exit code. Both others say that they go on.
  step nccl-killed 60 20 bash -c '"$@" 2>&1 | tee /dev/stderr | grep -c "go on by NCCL" | grep -qx 2' - \
    env TUTTI_TIMEOUT=40 "$dir/bin/tutti-run" --on-failure continue -n 3 "${each_its_host[@]}" "$dir/bin/gpu_share_job" nccl-die 1
  under_mps
}

# MPS runs the processes of a GPU at once. One that is there already stays.
under_mps() {
  section 'The same under MPS'
  local control pipes
  control=$(find_program nvidia-cuda-mps-control /usr/local/nvidia/bin /usr/bin)
  if [[ -z $control ]] || pgrep -x nvidia-cuda-mps >/dev/null; then
    echo "not run: ${control:+it runs already, as }${control:-nvidia-cuda-mps-control is not here}" | tee -a "$log"
    return
  fi
  pipes=$(mktemp -d)
  export CUDA_MPS_PIPE_DIRECTORY=$pipes CUDA_MPS_LOG_DIRECTORY=$pipes
  "$control" -d 2>&1 | tee -a "$log" || true
  for ranks in 2 3; do launch "mps-share-$ranks" 60 6 "$ranks" "$dir/bin/gpu_share_job" shared; done
  for ranks in 2 4; do
    launch "mps-processes-$ranks" 60 14 "$ranks" "$dir/bin/gpu-perf" --device cuda --only all_reduce "${middle[@]}"
    launch "mps-nccl-$ranks" 60 17 "$ranks" "${each_its_host[@]}" "$dir/bin/gpu-perf" --device cuda --only nccl --largest 16
    launch "mps-overlap-$ranks" 30 8 "$ranks" "$dir/bin/gpu_overlap" --device cuda "${short[@]}"
  done
  echo quit | "$control" || true
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  rm -rf "$pipes"
}

# One process for each file of tests, or each test of the longest, on each loop. More than five at once hinder each other
# on the GPU.
shard() {  # LOOP FILE [CASE]
  local code=0 begin=$SECONDS said=$out/shard-$1-$2${3:+-$3}
  TUTTI_LOOP=$1 "$dir/bin/gpu_test" --no-intro --source-file="*/$2_test.cpp" ${3:+--first="$3" --last="$3"} >"$said" 2>&1 || code=$?
  [[ $code == 0 ]] || tail -n 60 "$said"
  printf '%s: exit code %s, %s s: %s\n' "$*" "$code" "$((SECONDS - begin))" "$(grep -a 'test cases' "$said" | tail -1)"
  cat "$said" >>"$out/shards.log"
  rm -f "$said"
  return "$code"
}

tests() {
  section 'Tests: every backend on the GPU'
  local loop case file
  for loop in io_uring epoll; do
    for case in 1 2 3 4 5 6; do echo "$loop conformance $case"; done
    for file in open data_parallel random_programs stream convert cuda; do echo "$loop $file"; done
  done >"$out/shards"
  step tests 150 90 env TUTTI_TEST_DEVICES=CUDA xargs -a "$out/shards" -P 5 -L 1 "$dir/run_on_device.sh" shard "$dir" "$out"
}

sanitize() {
  section 'Under compute-sanitizer'
  local sanitizer tool file
  sanitizer=$(find_sanitizer)
  if [[ -z $sanitizer || -n $rehearsal ]]; then
    echo "not run: ${rehearsal:-compute-sanitizer is not here}" | tee -a "$log"
    return
  fi
  for file in memcheck:convert memcheck:open memcheck:stream memcheck:conformance racecheck:convert racecheck:open; do
    tool=${file%:*} file=${file#*:}
    step "$tool-$file" 120 12 env TUTTI_TEST_DEVICES=CUDA "$sanitizer" --tool "$tool" --error-exitcode 9 "$dir/bin/gpu_test" --no-intro \
      "--source-file=*/${file}_test.cpp"
  done
}

examples() {
  section Examples
  for ranks in 1 2; do launch "ring-$ranks" 60 4 "$ranks" "$dir/bin/gpu_ring_all_reduce" --device cuda; done
  for ranks in 1 2; do
    TUTTI_EXAMPLE_DATA=$dir/data launch "train-$ranks" 60 6 "$ranks" "$dir/bin/gpu_train" --device cuda --epochs 5
  done
  section 'A kernel and an all_reduce at once: ranks as threads, and as processes'
  local backend overlap
  for backend in staged one_device; do
    for ranks in 1 2 4; do
      TUTTI_GPU_BACKEND=$backend step "overlap-$backend-$ranks" 30 8 "$dir/bin/gpu_overlap" --device cuda --ranks "$ranks" \
        --trace "$out/overlap-$backend-$ranks.json" "${short[@]}"
    done
    TUTTI_GPU_BACKEND=$backend launch "overlap-processes-$backend" 30 8 2 "$dir/bin/gpu_overlap" --device cuda "${short[@]}"
  done
  [[ -d $dir/data/mnist ]] || return 0
  section 'MNIST: gradients averaged during the backward pass, and after it'
  for backend in staged one_device; do
    for overlap in yes no yes no; do
      TUTTI_GPU_BACKEND=$backend step "mnist-$backend-$overlap" 40 2 "$dir/bin/gpu_train" --device cuda --ranks 2 --mnist "$dir/data/mnist" \
        --hidden "${hidden:-1024,1024,1024}" --batch 256 --epochs "${epochs:-3}" --overlap "$overlap"
    done
  done
}

run() {
  dir=$(cd "$1" && pwd) out=${2:-$1/results}
  shift; shift || true
  mkdir -p "$out"
  out=$(cd "$out" && pwd)
  libraries=$dir/lib failed=()
  export TUTTI_FAKES_DIR=$dir/lib
  small=() middle=(--largest 64) short=(--rounds 400000)
  if [[ -n $rehearsal ]]; then
    export TUTTI_CUDA_LIBRARY=$dir/lib/libtutti_fake_cuda.so TUTTI_NCCL_LIBRARY=$dir/lib/libtutti_fake_nccl.so \
      TUTTI_FAKE_CUDA_KERNELS=$dir/lib/libexample_native_kernels.so
    small=(--largest 1 --rounds 50) middle=("${small[@]}") short=(--rounds 20) epochs=1 hidden=32,32
  fi
  find_cuda
  find_nccl
  [[ $# -gt 0 ]] || set -- "${groups[@]}"
  for group; do
    log=$out/$group.log
    : >"$log"
    case $group in
      perf) perf_group ;;
      machine | processes | tests | sanitize | examples) "$group" ;;
      *) echo "no group '$group': ${groups[*]}" >&2; exit 2 ;;
    esac
  done
  if [[ ${#failed[@]} -gt 0 ]]; then
    printf '\nfailed: %s\n' "${failed[*]}"
    return 1
  fi
  printf '\nevery step ended well\n'
}

rehearsal=
case ${1:-all} in
  shard)
    dir=$2 out=$3
    shift 3
    shard "$@"
    ;;
  pack) pack "${2:?a folder}" ;;
  run | rehearse)
    [[ $1 == run ]] || rehearsal=' (rehearsal on stand-ins: the figures mean nothing)'
    : "${2:?the folder that was packed}"
    shift
    run "$@"
    ;;
  all)
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    pack "$root/build/device/pack"
    mkdir -p "$root/perf/results"
    device=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1 | tr ' ' '-')
    run "$root/build/device/pack" | tee "$root/perf/results/gpu-${device:-none}.txt"
    ;;
  *)
    sed -n '3,17p' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac

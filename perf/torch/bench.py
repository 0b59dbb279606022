#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tutti beside Gloo in torch.distributed: the same script, in turns, on the same machine.

    build/torch-venv/bin/python perf/torch/bench.py [--ranks 2,4] [--launches 5] [--quick] [--only NAME] > table.md

Each launch starts both backends one after the other, and measures every row; of a row's operations in one launch the
median and the ninth decile are taken, of the launches the median. Time is that of rank 0, CPU that of all ranks. Each
rank has a core to itself, or shares it where there are more ranks.
"""

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time

KiB, MiB = 1 << 10, 1 << 20


def cases(quick):
    sizes = [4, 64 * KiB, MiB, 16 * MiB] if quick else [4, KiB, 64 * KiB, MiB, 16 * MiB, 64 * MiB]
    rows = [("all_reduce", n) for n in sizes]
    rows += [("ping-pong", n) for n in (8, MiB)]
    rows += [("barrier", 0)]
    for name in ("broadcast", "all_gather_into_tensor", "reduce", "reduce_scatter_tensor", "all_to_all_single"):
        rows += [(name, n) for n in ((64 * KiB, MiB) if quick else (4 * KiB, 64 * KiB, MiB, 16 * MiB))]
    rows += [("8 all_reduces at once", n) for n in (4 * KiB, MiB)]
    rows += [("DDP step, CNN of 1.0 M", 0), ("DDP step, MLP of 25 M", 0)]
    return rows


def operation(name, n):
    """A function that does it once."""
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()
    count = max(1, n // 4)
    if name == "all_reduce":
        x = torch.ones(count)
        return lambda: dist.all_reduce(x, dist.ReduceOp.MAX)
    if name == "reduce":
        x = torch.ones(count)
        return lambda: dist.reduce(x, 0, dist.ReduceOp.MAX)
    if name == "broadcast":
        x = torch.ones(count)
        return lambda: dist.broadcast(x, 0)
    if name == "barrier":
        return dist.barrier
    if name == "8 all_reduces at once":
        xs = [torch.ones(count) for _ in range(8)]

        def window():
            for w in [dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True) for x in xs]:
                w.wait()

        return window
    if name == "ping-pong":  # one way and back
        x = torch.ones(count)
        if rank == 0:
            return lambda: (dist.send(x, 1), dist.recv(x, 1))
        if rank == 1:
            return lambda: (dist.recv(x, 0), dist.send(x, 0))
        return lambda: None
    count -= count % size
    if name == "all_gather_into_tensor":
        x, out = torch.ones(max(1, count // size)), torch.empty(max(1, count // size) * size)
        return lambda: dist.all_gather_into_tensor(out, x)
    if name == "reduce_scatter_tensor":
        x, out = torch.ones(max(size, count)), torch.empty(max(1, count // size))
        return lambda: dist.reduce_scatter_tensor(out, x, dist.ReduceOp.MAX)
    if name == "all_to_all_single":
        x, out = torch.ones(max(size, count)), torch.empty(max(size, count))
        return lambda: dist.all_to_all_single(out, x)
    return training(name, dist.get_backend() != "none")


def training(name, averages):
    import torch
    import torch.nn as nn

    torch.manual_seed(1)
    if "CNN" in name:
        net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                            nn.Flatten(), nn.Linear(64 * 25, 600), nn.ReLU(), nn.Linear(600, 10))
        data = torch.randn(16, 1, 28, 28)
    else:
        net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1024))
        data = torch.randn(32, 1024)
    model = nn.parallel.DistributedDataParallel(net) if averages else net
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()

    return step


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(backend, rows):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    # Otherwise the kernel may leave two ranks on one core for as long as they live, which decides every row.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ["RANK"]) % len(cores)]})
    dist.init_process_group(backend)
    rank = dist.get_rank()
    results = {}
    for name, n in rows:
        once = operation(name, n)
        alone = training(name, False) if name.startswith("DDP") else None
        for key, f in ((f"{name}|{n}", once), (f"{name} without averaging|{n}", alone)):
            if f is None:
                continue
            begin = time.perf_counter()
            for _ in range(3):
                f()
            each = torch.tensor([(time.perf_counter() - begin) / 3], dtype=torch.float64)
            dist.broadcast(each, 0)
            repeats = int(min(2000, max(8, 0.4 / each.item())))
            dist.barrier()
            used, times = cpu(), []
            for _ in range(repeats):
                at = time.perf_counter()
                f()
                times.append(time.perf_counter() - at)
            used = torch.tensor([(cpu() - used) / repeats], dtype=torch.float64)
            dist.all_reduce(used)
            times.sort()
            results[key] = (times[len(times) // 2], times[len(times) * 9 // 10], used.item())
    if rank == 0:
        print("RESULT " + json.dumps(results), flush=True)
    dist.destroy_process_group()


def launch(backend, ranks, arguments):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    processes = []
    for rank in range(ranks):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port), OMP_NUM_THREADS="1")
        processes.append(subprocess.Popen([sys.executable, __file__, "--backend", backend, *arguments], env=environment,
                                          stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL, text=True))
    out, _ = processes[0].communicate(timeout=1200)
    for p in processes:
        p.wait(60)
    line = next((l for l in out.splitlines() if l.startswith("RESULT ")), None)
    if line is None:
        raise SystemExit(f"{backend} on {ranks} ranks gave no result")
    return json.loads(line[len("RESULT "):])


def readable(n):
    return "" if n == 0 else f"{n} B" if n < KiB else f"{n // KiB} KiB" if n < MiB else f"{n // MiB} MiB"


def time_text(seconds):
    us = seconds * 1e6
    return f"{us:.1f} us" if us < 100 else f"{us:.0f} us" if us < 10_000 else f"{us / 1000:.1f} ms"


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ranks", default="2,4")
    options.add_argument("--launches", type=int, default=5)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--only", default="")
    options.add_argument("--backend", help=argparse.SUPPRESS)
    given = options.parse_args()
    rows = [row for row in cases(given.quick) if given.only in row[0]]
    if given.backend:
        return measure(given.backend, rows)
    passed = (["--quick"] if given.quick else []) + (["--only", given.only] if given.only else [])
    for ranks in map(int, given.ranks.split(",")):
        seen = {"tutti": [], "gloo": []}
        for number in range(given.launches):
            for backend in ("tutti", "gloo") if number % 2 == 0 else ("gloo", "tutti"):
                seen[backend].append(launch(backend, ranks, passed))
                print(f"{ranks} ranks, launch {number + 1}, {backend}", file=sys.stderr, flush=True)
        print(f"\n### {ranks} ranks\n\n| operation | | tutti | p90 | Gloo | p90 | time, ratio | CPU, ratio |\n|---|---|---|---|---|---|---|---|")
        for key in seen["tutti"][0]:
            name, n = key.split("|")
            middle = {b: [statistics.median(r[key][i] for r in seen[b]) for i in range(3)] for b in seen}
            t, g = middle["tutti"], middle["gloo"]
            print(f"| {name} | {readable(int(n))} | {time_text(t[0])} | {time_text(t[1])} | {time_text(g[0])} | {time_text(g[1])} | "
                  f"{t[0] / g[0]:.3f} | {t[2] / g[2]:.2f} |", flush=True)


if __name__ == "__main__":
    main()

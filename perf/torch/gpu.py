#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors through tutti, Gloo and NCCL in torch.distributed: ranks that share one GPU.

    python3 perf/torch/gpu.py [--ranks 2] [--launches 3]

NCCL takes ranks with different NCCL_HOSTID for ranks of several hosts, and connects them by sockets. Every result is
checked. A row has the median of an operation in one launch, then the median over the launches.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

from bench import KiB, MiB, readable

BACKENDS = ("tutti", "gloo", "nccl")


def agreed(value):
    import torch
    import torch.distributed as dist

    # The ranks end a row together: the number of rounds is that of rank 0.
    x = torch.tensor([value], dtype=torch.float64)
    dist.broadcast(x, 0)
    return x.item()


def rounds(operation):
    begin = time.perf_counter()
    for _ in range(3):
        operation()
    return int(agreed(max(8, min(300, 0.2 / max(1e-6, (time.perf_counter() - begin) / 3)))))


def measure(rank, size, backend, store, out):
    os.environ["NCCL_HOSTID"] = f"rank{rank}"
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_IB_DISABLE", "1")
    import torch
    import torch.distributed as dist

    import tutti

    tutti._register()
    torch.set_num_threads(1)
    torch.cuda.set_device(0)
    host = "gloo" if backend == "gloo" else "tutti"
    dist.init_process_group(f"cpu:{host},cuda:{backend}", init_method="file://" + store, rank=rank, world_size=size)
    seen = {}

    def row(name, operation):
        times = []
        for _ in range(rounds(operation)):
            dist.barrier(group=host_group)
            begin = time.perf_counter()
            operation()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        seen[name] = statistics.median(times)
        if rank == 0:
            print(f"{backend}: {name.replace('|', ', ')} bytes: {seen[name] * 1e6:.1f} us", file=sys.stderr, flush=True)

    host_group = dist.new_group(backend=host)
    for n in (4, 64 * KiB, MiB, 16 * MiB, 64 * MiB):
        x = torch.ones(max(1, n // 4), device="cuda")
        dist.all_reduce(x)
        assert (x == size).all().item(), f"{backend}: all_reduce of {n} bytes is wrong"
        x.fill_(1)
        row(f"all_reduce|{n}", lambda x=x: dist.all_reduce(x, dist.ReduceOp.MAX))
        row(f"broadcast|{n}", lambda x=x: dist.broadcast(x, 0))
        if backend == "gloo":  # it gathers no CUDA tensors
            continue
        y = torch.empty(size * max(1, n // 4), device="cuda")
        z = torch.full((max(1, n // 4),), float(rank), device="cuda")
        dist.all_gather_into_tensor(y, z)
        assert [v.item() for v in y[:: max(1, n // 4)]] == list(range(size)), f"{backend}: all_gather is wrong"
        row(f"all_gather|{n}", lambda y=y, z=z: dist.all_gather_into_tensor(y, z))

    # Training: gradients are averaged during the backward pass.
    torch.manual_seed(rank)
    layers = []
    for _ in range(6):
        layers += [torch.nn.Linear(1024, 1024), torch.nn.ReLU()]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(256, 1024, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(images).square().mean().backward()
        optimizer.step()

    row(f"DDP step, MLP of 6.3 M|{sum(p.numel() * 4 for p in model.parameters())}", step)
    sums = torch.stack([p.double().sum() for p in model.parameters()])
    most, least = sums.clone().cpu(), sums.clone().cpu()
    dist.all_reduce(most, dist.ReduceOp.MAX, group=host_group)
    dist.all_reduce(least, dist.ReduceOp.MIN, group=host_group)
    assert torch.equal(most, least), f"{backend}: the replicas differ"
    if rank == 0:
        out.put(json.dumps(seen))
    dist.destroy_process_group()


def launch(backend, ranks):
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    out = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        processes = [context.Process(target=measure, args=(r, ranks, backend, store, out)) for r in range(ranks)]
        for p in processes:
            p.start()
        end = time.monotonic() + 60
        for p in processes:
            p.join(max(0.1, end - time.monotonic()))
        codes = [p.exitcode for p in processes]
        for p in processes:
            p.kill()
            p.join()
    if codes != [0] * ranks:
        print(f"{backend}: exit codes {codes}", flush=True)
        return None
    return json.loads(out.get())


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--launches", type=int, default=3)
    options.add_argument("--backends", default=",".join(BACKENDS))
    given = options.parse_args()
    import torch

    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name(0)}, {given.ranks} ranks on one GPU, "
          f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}", flush=True)
    backends = given.backends.split(",")
    seen = {b: [] for b in backends}
    for _ in range(given.launches):
        for backend in backends:
            rows = launch(backend, given.ranks)
            if rows:
                seen[backend].append(rows)
    names = next((rows[0] for rows in seen.values() if rows), {})
    print(f"\n| operation | | {' | '.join(b + ', us' for b in backends)} |\n{'|---' * (len(backends) + 2)}|")
    for key in names:
        name, n = key.split("|")
        cells = [f"{statistics.median(r[key] for r in seen[b]) * 1e6:.1f}" if seen[b] and key in seen[b][0] else "-"
                 for b in backends]
        print(f"| {name} | {readable(int(n))} | {' | '.join(cells)} |")
    return 0 if all(seen.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

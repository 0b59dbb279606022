#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tutti beside Gloo in torch.distributed: the same script, in turns, on the same machine.

    build/torch-venv/bin/python perf/torch/bench.py [--ranks 2,4] [--start spawn,torchrun] [--launches 5] [--quick]
        [--only NAME] [--unpinned] [--picture FILE.svg] > table.md

Each launch runs both backends one after the other and measures every row. A row has the median and the ninth decile of
its operations in one launch, then the median over the launches. Time is that of rank 0, CPU that of all ranks. Each rank
is pinned to a core; cores are shared if there are more ranks. With --unpinned the kernel places the ranks, and a column
shows the share of operations in which two ranks used one core.
"""

import argparse
import ctypes
import html
import json
import math
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
        rows += [(name, n) for n in ((64 * KiB, MiB) if quick else (4 * KiB, 64 * KiB, MiB, 16 * MiB, 64 * MiB))]
    rows += [("8 all_reduces at once", n) for n in (4 * KiB, MiB)]
    rows += [("DDP step, CNN of 1.0 M", 0), ("DDP step, MLP of 25 M", 0)]
    return rows


def operation(name, n):
    """Returns a function that runs the operation once."""
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
    return training(name, "averaging")


def training(name, kind):
    """Returns a step of DDP with "averaging", of "tutti.ddp", with only its "copies" into and out of buckets, or "alone"
    without DDP."""
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
    if kind == "tutti.ddp":
        import tutti

        model = tutti.ddp(net)
    else:
        model = net if kind == "alone" else nn.parallel.DistributedDataParallel(net)
    if kind == "copies":

        def unaveraged(_, bucket):
            done = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        model.register_comm_hook(None, unaveraged)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()

    return step


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(backend, rows, pinned):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    # Otherwise the kernel may keep two ranks on one core for their whole life, which dominates every row.
    cores = sorted(os.sched_getaffinity(0))
    if pinned:
        os.sched_setaffinity(0, {cores[int(os.environ["RANK"]) % len(cores)]})
    core = ctypes.CDLL(None).sched_getcpu if not pinned else lambda: 0
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    results = {}
    for name, n in rows:
        steps = {name: operation(name, n)}
        if name.startswith("DDP"):
            steps[f"{name} by tutti.ddp"] = training(name, "tutti.ddp" if backend == "tutti" else "averaging")
            steps[f"{name} without averaging"] = training(name, "copies")
            steps[f"{name} without DDP"] = training(name, "alone")
        for key, f in steps.items():
            begin = time.perf_counter()
            for _ in range(3):
                f()
            each = torch.tensor([(time.perf_counter() - begin) / 3], dtype=torch.float64)
            dist.broadcast(each, 0)
            repeats = int(min(2000, max(8, 0.4 / each.item())))
            dist.barrier()
            used, times, places = cpu(), [], []
            for _ in range(repeats):
                at = time.perf_counter()
                f()
                times.append(time.perf_counter() - at)
                places.append(core())
            used = torch.tensor([(cpu() - used) / repeats], dtype=torch.float64)
            dist.all_reduce(used)
            everywhere = [torch.empty(repeats, dtype=torch.int32) for _ in range(size)]
            dist.all_gather(everywhere, torch.tensor(places, dtype=torch.int32))
            together = (everywhere[0] == everywhere[-1]).double().mean().item()
            times.sort()
            results[f"{key}|{n}"] = (times[len(times) // 2], times[len(times) * 9 // 10], used.item(), together)
    if rank == 0:
        print("RESULT " + json.dumps(results), flush=True)
    dist.destroy_process_group()


def launch(backend, ranks, start, arguments):
    if start == "torchrun":
        out = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
                              __file__, "--backend", backend, *arguments], env=dict(os.environ, OMP_NUM_THREADS="1"),
                             stdout=subprocess.PIPE, text=True, timeout=2400).stdout
        return result_in(out, backend, ranks)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    processes = []
    for rank in range(ranks):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port), OMP_NUM_THREADS="1")
        processes.append(subprocess.Popen([sys.executable, __file__, "--backend", backend, *arguments], env=environment,
                                          stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL, text=True))
    out, _ = processes[0].communicate(timeout=2400)
    for p in processes:
        p.wait(60)
    return result_in(out, backend, ranks)


def result_in(out, backend, ranks):
    line = next((l for l in out.splitlines() if l.startswith("RESULT ")), None)
    if line is None:
        raise SystemExit(f"{backend} on {ranks} ranks gave no result")
    return json.loads(line[len("RESULT "):])


def readable(n):
    return "" if n == 0 else f"{n} B" if n < KiB else f"{n // KiB} KiB" if n < MiB else f"{n // MiB} MiB"


def time_text(seconds):
    us = seconds * 1e6
    return f"{us:.1f} us" if us < 100 else f"{us:.0f} us" if us < 10_000 else f"{us / 1000:.1f} ms"


STYLE = """
  .page { fill: #ffffff } .text { fill: #1f2328 } .soft { fill: #59636e } .bar { fill: #8250df } .one { stroke: #1f2328 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .text { fill: #f0f6fc } .soft { fill: #9198a1 } .bar { fill: #ab7df8 } .one { stroke: #f0f6fc }
  }
"""


def drawn(sections):
    """Draws Gloo's time relative to tutti's, one panel for each of [(title, [(label, tutti's seconds, ratio)])]."""
    labels, bars, line, top = 236, 190, 18, 62
    panel = labels + bars + 50
    last = max([1] + [math.log2(ratio) for _, rows in sections for _, _, ratio in rows])
    height = top + line * max(len(rows) for _, rows in sections) + 40
    out = []

    def text(x, y, words, style="text", anchor="start"):
        out.append(f'<text class="{style}" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{html.escape(words)}</text>')

    text(16, 24, "torch.distributed: Gloo's time, as so many times that of tutti")
    for number, (title, rows) in enumerate(sections):
        left = 16 + number * panel
        text(left, 46, title)
        for i, (label, seconds, ratio) in enumerate(rows):
            y = top + i * line
            width = max(1, bars * max(0, math.log2(ratio)) / last)
            text(left, y + 11, label)
            text(left + labels - 6, y + 11, time_text(seconds), "soft", "end")
            out.append(f'<rect class="bar" x="{left + labels}" y="{y}" width="{width:.1f}" height="{line - 5}" rx="2"/>')
            text(left + labels + width + 4, y + 11, f"{ratio:.{1 if ratio < 10 else 0}f}×", "soft")
        out.append(f'<path class="one" d="M{left + labels} {top - 6}V{top + line * len(rows)}"/>')
    text(16, height - 12, "Logarithmic scale; beside each name the time of tutti.", "soft")
    width = 16 + panel * len(sections)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" '
            f'font-size="11">\n<style>{STYLE}</style>\n<rect class="page" width="{width}" height="{height}" rx="8"/>\n'
            + "\n".join(out) + "\n</svg>\n")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ranks", default="2,4")
    options.add_argument("--launches", type=int, default=5)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--only", default="")
    options.add_argument("--start", default="spawn", help="spawn, torchrun, or both with a comma")
    options.add_argument("--unpinned", action="store_true")
    options.add_argument("--picture", help="an SVG of the ratios")
    options.add_argument("--backend", help=argparse.SUPPRESS)
    given = options.parse_args()
    rows = [row for row in cases(given.quick) if given.only in row[0]]
    if given.backend:
        return measure(given.backend, rows, not given.unpinned)
    passed = ["--quick"] * given.quick + ["--unpinned"] * given.unpinned + ["--only", given.only]
    sections = []
    for ranks, start in ((int(r), s) for r in given.ranks.split(",") for s in given.start.split(",")):
        seen = {"tutti": [], "gloo": []}
        for number in range(given.launches):
            for backend in ("tutti", "gloo") if number % 2 == 0 else ("gloo", "tutti"):
                seen[backend].append(launch(backend, ranks, start, passed))
                print(f"{ranks} ranks by {start}, launch {number + 1}, {backend}", file=sys.stderr, flush=True)
        columns = ["operation", "", "tutti", "p90", "Gloo", "p90", "time, ratio", "CPU, ratio"]
        columns += ["one core, tutti", "one core, Gloo"] * given.unpinned
        print(f"\n### {ranks} ranks by {start}\n\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
        sections.append((f"{ranks} ranks by {start}", []))
        for key in seen["tutti"][0]:
            name, n = key.split("|")
            t, g = ([statistics.median(r[key][i] for r in seen[b]) for i in range(4)] for b in ("tutti", "gloo"))
            cells = [name, readable(int(n)), *map(time_text, (t[0], t[1], g[0], g[1])), f"{t[0] / g[0]:.3f}", f"{t[2] / g[2]:.2f}"]
            cells += [f"{b[3]:.0%}" for b in (t, g)] * given.unpinned
            print(f"| {' | '.join(cells)} |", flush=True)
            if "without" not in name:
                sections[-1][1].append((f"{name} {readable(int(n))}", t[0], g[0] / t[0]))
    if given.picture:
        with open(given.picture, "w") as file:
            file.write(drawn(sections))


if __name__ == "__main__":
    main()

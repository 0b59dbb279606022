# SPDX-License-Identifier: Apache-2.0
"""Tensors on a device that tutti::gpu opens. Stand-ins for libcuda and libnccl replace a GPU (stand_in.cpp).

TUTTI_TORCH_DEVICE=cuda takes a GPU instead. Ranks that are threads need two of them.
"""

import copy
import importlib.util
import os
import pathlib
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions, AllreduceOptions

from ranks import patience, raises, run

kind = os.environ.get("TUTTI_TORCH_DEVICE", "stand_in")
built = pathlib.Path(__file__).parents[2] / "build/wheel/tests"
pytestmark = pytest.mark.skipif(
    not (torch.cuda.is_available() if kind == "cuda" else (built / "stand_in.so").exists()),
    reason="no GPU" if kind == "cuda" else "not built: cmake --build build/wheel --target stand_in",
)


@pytest.fixture(autouse=True)
def libraries(monkeypatch):
    if kind == "cuda":
        return
    cuda = str(built / "fakes/libtutti_fake_cuda.so")
    monkeypatch.setenv("TUTTI_CUDA_LIBRARY", cuda)
    monkeypatch.setenv("TUTTI_CUDA_KERNELS", cuda)  # its kernels are known by name
    monkeypatch.setenv("TUTTI_NCCL_LIBRARY", str(built / "fakes/libtutti_fake_nccl.so"))


class Cuda:
    """What the module stand_in has, by torch.cuda."""

    def misuses(self):
        return 0

    def new_stream(self, device):
        return torch.cuda.Stream(device)

    def set_stream(self, device, stream):
        before = torch.cuda.current_stream(device)
        torch.cuda.set_stream(stream or torch.cuda.default_stream(device))
        return before

    def passed(self, device):
        return torch.cuda.current_stream(device).query()

    def synchronize(self, device):
        torch.cuda.current_stream(device).synchronize()

    def hold(self, device):
        with torch.cuda.device(device):
            torch.cuda._sleep(1 << 31)  # cycles: about a second

    def open(self, gate):
        pass


def make_device(devices=1, adversary=0):
    if kind == "cuda":
        torch.cuda.set_device(0)
        return Cuda()
    spec = importlib.util.spec_from_file_location("stand_in", built / "stand_in.so")
    stand_in = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stand_in)
    torch._register_device_module("stand_in", stand_in)
    stand_in.reset(devices, adversary)
    return stand_in


def join(rank, size, store):
    dist.init_process_group(f"cpu:tutti,{kind}:tutti", init_method="file://" + store, rank=rank, world_size=size)


def there(*values, dtype=torch.float32, device=0):
    return torch.tensor(values, dtype=dtype).to(f"{kind}:{device}")


def is_soon(condition, what):
    end = time.monotonic() + patience / 2
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.002)


def equal(x, values):
    assert x.device.type == kind, x.device
    got = x.cpu().tolist()
    assert got == values, f"{got} is not {values}"


# ---- ranks are processes ----


def each_collective(rank, size, store, backend):
    stand_in = make_device()
    join(rank, size, store)
    ranks = range(size)
    total = sum(ranks)

    x = there(1.0 + rank, 2.0)
    dist.all_reduce(x)
    equal(x, [total + size, 2.0 * size])
    group = dist.distributed_c10d._get_default_group()._get_backend(torch.device(kind))
    assert group.why_staged() == "", group.why_staged()

    for dtype in (torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8, torch.int8):
        x = there(rank, 3, dtype=dtype)
        dist.all_reduce(x)
        equal(x, [total, 3 * size])
    x = there(rank == 1, False, True, dtype=torch.bool)
    dist.all_reduce(x)
    equal(x, [True, False, True])
    x = there(1.0 + rank, 4.0)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    equal(x, [1 + total / size, 4.0])
    x = there(rank, -7, dtype=torch.int32)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    equal(x, [total // size, -7])
    x = there(1.0 + rank)
    dist.all_reduce(x, dist._make_nccl_premul_sum(2.0))
    equal(x, [2.0 * (total + size)])
    x = there(rank, 5)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    equal(x, [size - 1.0, 5])

    x = there(float(rank), 1.0)
    dist.broadcast(x, size - 1)
    equal(x, [size - 1.0, 1.0])
    x = there(float(rank))
    dist.reduce(x, 0)
    assert rank != 0 or x.cpu().item() == total
    out = there(*[0.0] * 2 * size)
    dist.all_gather_into_tensor(out, there(float(rank), 9.0))
    equal(out, [v for r in ranks for v in (float(r), 9.0)])
    out = there(0.0)
    dist.reduce_scatter_tensor(out, there(*[float(r + rank) for r in ranks]))
    equal(out, [total + float(size * rank)])
    out = there(*[0.0] * size)
    dist.all_to_all_single(out, there(*[10.0 * rank + r for r in ranks]))
    equal(out, [10.0 * r + rank for r in ranks])
    large = torch.full((1 << 19,), 1.0 + rank).to(kind)  # several chunks
    dist.all_reduce(large)
    assert bool((large.cpu() == total + size).all())
    dist.all_reduce(there())  # no elements

    # Lists, which are joined on the device.
    pieces = [there(0.0, 0.0) for _ in ranks]
    dist.all_gather(pieces, there(float(rank), 1.0))
    for r in ranks:
        equal(pieces[r], [float(r), 1.0])
    pieces = [there(*[0.0] * (r + 1)) for r in ranks]  # uneven
    dist.all_gather(pieces, there(*[float(rank)] * (rank + 1)))
    for r in ranks:
        equal(pieces[r], [float(r)] * (r + 1))
    out = there(0.0)
    dist.reduce_scatter(out, [there(float(r)) for r in ranks])
    equal(out, [float(size * rank)])
    pieces = [there(0.0) for _ in ranks] if rank == 1 else None
    dist.gather(there(float(rank)), pieces, dst=1)
    if rank == 1:
        for r in ranks:
            equal(pieces[r], [float(r)])
    out = there(0.0)
    dist.scatter(out, [there(float(r)) for r in ranks] if rank == 0 else None, src=0)
    equal(out, [float(rank)])
    outs = [there(0.0) for _ in ranks]
    dist.all_to_all(outs, [there(10.0 * rank + r) for r in ranks])
    for r in ranks:
        equal(outs[r], [10.0 * r + rank])
    several = [there(1.0 * rank), there(2.0, 3.0)]
    dist.all_reduce_coalesced(several)
    equal(several[0], [total])
    equal(several[1], [2.0 * size, 3.0 * size])
    uneven = there(*[0.0] * total)
    splits = [r for r in ranks]
    dist.all_to_all_single(uneven, there(*[float(rank)] * size * rank), splits, [rank] * size)
    equal(uneven, [float(r) for r in ranks for _ in range(r)])

    # Elements that do not lie in order.
    x = torch.tensor([[1.0 + rank, 2.0], [3.0, 4.0]]).to(kind).t()
    assert not x.is_contiguous()
    dist.all_reduce(x)
    equal(x, [[total + size, 3.0 * size], [2.0 * size, 4.0 * size]])
    out = torch.zeros(2, size).to(kind).t()
    dist.all_gather_into_tensor(out, there(float(rank), 5.0).view(1, 2))
    equal(out, [[float(r), 5.0] for r in ranks])

    work = dist.all_reduce(there(1.0), async_op=True)
    future = work.get_future().then(lambda f: f.value()[0])
    future.wait()
    equal(future.value(), [size])
    assert work.get_future_result().wait() == 0
    is_soon(work.is_completed, "the work did not complete")

    # Messages are staged.
    if rank == 0:
        dist.send(there(7.0, 8.0), 1)
    elif rank == 1:
        x = there(0.0, 0.0)
        dist.recv(x, 0)
        equal(x, [7.0, 8.0])
    dist.barrier()
    group = dist.new_group([0, 1])
    if rank < 2:
        x = there(1.0 + rank)
        dist.all_reduce(x, group=group)
        equal(x, [3.0])
    dist.destroy_process_group()
    assert stand_in.misuses() == 0, stand_in.last_misuse()


@pytest.mark.parametrize("backend", ["one_device", "staged"])
@pytest.mark.parametrize("size", [2, 3])
def test_each_collective(tmp_path, monkeypatch, size, backend):
    if backend == "staged":
        monkeypatch.setenv("TUTTI_GPU_BACKEND", backend)
    run(size, each_collective, str(tmp_path / "store"), backend, join=False)


def connects_at_once(rank, size, store):
    make_device()
    dist.init_process_group(
        f"{kind}:tutti",
        init_method="file://" + store,
        rank=rank,
        world_size=size,
        device_id=torch.device(kind, 0),
    )
    x = there(1.0)
    dist.all_reduce(x)
    equal(x, [size])


def test_device_id_opens_the_device(tmp_path):
    run(2, connects_at_once, str(tmp_path / "store"), join=False)


def without_a_driver(rank, size, store):
    make_device()
    assert torch.ones(1).to(kind).device.index == 0  # which stays open
    os.environ["TUTTI_CUDA_LIBRARY"] = "/no/such/libcuda.so"
    join(rank, size, store)
    x = there(1.0 + rank)
    dist.all_reduce(x)
    equal(x, [3.0])
    group = dist.distributed_c10d._get_default_group()._get_backend(torch.device(kind))
    assert "/no/such/libcuda.so" in group.why_staged(), group.why_staged()


@pytest.mark.skipif(kind == "cuda", reason="has a driver")
def test_without_a_driver_tensors_are_staged(tmp_path):
    run(2, without_a_driver, str(tmp_path / "store"), join=False)


def averages(rank, size, store):
    """DistributedDataParallel computes there what it computes on the CPU."""
    make_device()
    join(rank, size, store)
    torch.manual_seed(7)
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    losses = {}
    for where in ("cpu", kind):
        model = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(network).to(where))
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        data = torch.Generator().manual_seed(rank)
        for _ in range(4):
            optimiser.zero_grad()
            loss = (model(torch.randn(4, 8, generator=data).to(where)) ** 2).mean()
            loss.backward()
            optimiser.step()
            losses.setdefault(where, []).append(loss.item())
    assert torch.allclose(torch.tensor(losses["cpu"]), torch.tensor(losses[kind])), losses


def test_ddp(tmp_path):
    run(2, averages, str(tmp_path / "store"), join=False)


def refused(rank, size, store):
    stand_in = make_device(2)
    join(rank, size, store)
    x = there(1.0)
    dist.all_reduce(x)
    raises(ValueError, f"uses {kind}:0", dist.all_reduce, there(1.0, device=1))
    stand_in.set_capturing(0, True)
    raises(ValueError, "captured into a graph", dist.all_reduce, x)
    stand_in.set_capturing(0, False)
    dist.all_reduce(x)  # nothing has changed
    equal(x, [size * size])


@pytest.mark.skipif(kind == "cuda", reason="for the stand-in")
def test_what_cannot_run_is_refused(tmp_path):
    run(2, refused, str(tmp_path / "store"), join=False)


def killed(rank, size, store):
    make_device()
    join(rank, size, store)
    x = there(1.0)
    dist.all_reduce(x)
    x.cpu()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(x, async_op=True)
    is_soon(lambda: work.exception() is not None or work.is_completed(), "the work did not end")
    raises(dist.DistBackendError, "rank 2", work.wait)
    raises(dist.DistBackendError, "rank 2", dist.all_reduce, x)
    dist.destroy_process_group()
    join(rank, 2, store + "-again")  # in the same process
    x = there(1.0 + rank)
    dist.all_reduce(x)
    equal(x, [3.0])


@pytest.mark.parametrize("backend", ["one_device", "staged"])
def test_a_killed_rank_is_named(tmp_path, monkeypatch, backend):
    if backend == "staged":
        monkeypatch.setenv("TUTTI_GPU_BACKEND", backend)
    run(3, killed, str(tmp_path / "store"), join=False, expected=[0, 0, -signal.SIGKILL])


def never_calls(rank, size, store):
    make_device()
    join(rank, size, store)
    x = there(1.0)
    dist.all_reduce(x)
    if rank == 1:
        dist.recv(torch.empty(1), 0)  # until rank 0 has been told
        return
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device(kind))
    backend._set_default_timeout(dist.distributed_c10d.timedelta(milliseconds=300))
    work = dist.all_reduce(x, async_op=True)
    is_soon(work.is_completed, "the work did not end")
    said = raises(dist.DistBackendError, "rank 1", work.wait)
    assert "Timed out" in said, said


@pytest.mark.parametrize("backend", ["one_device", "staged"])
def test_a_rank_that_never_calls_is_named(tmp_path, monkeypatch, backend):
    if backend == "staged":
        monkeypatch.setenv("TUTTI_GPU_BACKEND", backend)
    run(2, never_calls, str(tmp_path / "store"), join=False, expected=[0, 1])


def calls_differ(rank, size, store):
    make_device()
    join(rank, size, store)
    x = there(1.0, 2.0)
    dist.all_reduce(x)
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
    else:
        work = dist.all_gather_into_tensor(there(*[0.0] * 2 * size), x, async_op=True)
    is_soon(lambda: work.exception() is not None or work.is_completed(), "the work did not end")
    said = raises(dist.DistBackendError, "all_reduce", work.wait)
    assert "all_gather" in said, said


def test_different_calls_are_named(tmp_path):
    run(2, calls_differ, str(tmp_path / "store"), join=False)


# ---- ranks are threads, each with a device: NCCL's stand-in joins those ----


def backend_of(rank, size, store):
    import tutti

    options = dist.distributed_c10d._DistributedBackendOptions()
    options.store = dist.FileStore(store, size)
    options.group_rank, options.group_size = rank, size
    options.group_id = "threads"
    options.global_ranks_in_group = list(range(size))
    options.timeout = dist.distributed_c10d.timedelta(seconds=patience / 2)
    return tutti._create(options)


def on_threads(size, body, store, adversary=0):
    """Runs body(rank, group, stand_in) on `size` threads of this process."""
    stand_in = make_device(size, adversary)
    failures = []

    def of_rank(rank):
        try:
            group = backend_of(rank, size, store)
            body(rank, size, group, stand_in, store)
            group.shutdown()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=of_rank, args=(rank,), daemon=True) for rank in range(size)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(patience / 2)
    if failures:
        raise failures[0]
    assert not any(t.is_alive() for t in threads), "a rank is blocked"
    assert stand_in.misuses() == 0, stand_in.last_misuse()


def goes_on(rank, size, group, stand_in, _):
    """The host enqueues and goes on, while its stream is held."""
    on = dict(device=rank)
    x, ten, seen = there(0.0, **on), there(10.0 + rank, **on), there(0.0, **on)
    group.allreduce([x]).wait()  # opens the device
    gate = stand_in.hold(rank)
    x.copy_(ten)
    work = group.allreduce([x])
    work.wait()  # the stream waits
    seen.copy_(x)
    assert not stand_in.passed(rank)
    assert not work.is_completed()
    stand_in.open(gate)
    stand_in.synchronize(rank)
    equal(seen, [21.0])
    is_soon(work.is_completed, "the work did not complete")
    assert work.is_success()

    # Only the stream that waits for it is held by the operation.
    gate = stand_in.hold(rank)
    work = group.allreduce([x])
    other = stand_in.new_stream(rank)
    before = stand_in.set_stream(rank, other)
    assert stand_in.passed(rank)
    work.wait()
    seen.copy_(x)
    assert not stand_in.passed(rank)
    stand_in.open(gate)
    stand_in.synchronize(rank)
    equal(seen, [42.0])
    stand_in.set_stream(rank, before)

    # wait() with a time limit is for the host.
    gate = stand_in.hold(rank)
    work = group.allreduce([x])
    raises(dist.DistBackendError, "Timed out", work.wait, dist.distributed_c10d.timedelta(milliseconds=20))
    stand_in.open(gate)
    assert work.wait(dist.distributed_c10d.timedelta(seconds=patience / 4))
    equal(x, [84.0])


def frees_early(rank, size, group, stand_in, _):
    """Memory of tensors that the program drops is not given to others before the operation has passed."""
    count, on = 1000, f"{kind}:{rank}"
    group.allreduce([there(0.0, device=rank)]).wait()
    out = torch.zeros(size * count).to(on)
    mine = torch.full((count,), 1.0 + rank).to(on)
    options = AllgatherOptions()
    options.asyncOp = True
    gate = stand_in.hold(rank)
    work = group.all_gather_single(out, mine, options)
    del mine
    torch.empty(count, device=on)  # would take its memory, and overwrites it at its end
    stand_in.open(gate)
    work.wait()
    got = out.cpu().view(size, count)
    assert bool((got == torch.tensor([[1.0 + r] for r in range(size)])).all()), got

    out = torch.zeros(count).to(on)
    pieces = [torch.full((count,), 1.0 + r).to(on) for r in range(size)]  # copied in the order of the stream
    gate = stand_in.hold(rank)
    work = group.reduce_scatter([out], [pieces])
    del pieces
    torch.empty(count, device=on)
    stand_in.open(gate)
    work.wait()
    assert bool((out.cpu() == size * (1.0 + rank)).all()), out.cpu()


def steps(rank, size, group, stand_in, _):
    """Many operations in a row, on two streams, none of which the host waits for."""
    streams = [0, stand_in.new_stream(rank)]
    x = [there(1.0, device=rank), there(2.0, device=rank)]
    for step in range(20):
        for i in (0, 1):
            stand_in.set_stream(rank, streams[i])
            group.allreduce([x[i]]).wait()
            options = AllreduceOptions()
            options.reduceOp = dist.ReduceOp.AVG
            group.allreduce([x[i]], options).wait()
    for i in (0, 1):
        stand_in.set_stream(rank, streams[i])
        stand_in.synchronize(rank)
        equal(x[i], [(1.0 + i) * size**20])


@pytest.mark.skipif(kind == "cuda" and torch.cuda.device_count() < 2, reason="needs two GPUs")
def gives_up(rank, size, group, stand_in, store):
    """A rank ends its group while NCCL works: the other is told, and both go on in a new group."""
    x = there(1.0, device=rank)
    group.allreduce([x]).wait()
    gate = stand_in.hold(rank)
    work = group.allreduce([x])
    called = pathlib.Path(store + "-called")
    if rank == 1:
        is_soon(called.exists, "rank 0 did not call")  # it would be told in an earlier call
        group.abort()
    else:
        called.touch()
    is_soon(lambda: work.is_completed() or work.exception() is not None, "the work did not end")
    stand_in.open(gate)
    raises(dist.DistBackendError, "abort", work.wait)
    raises(dist.DistBackendError, "abort", lambda: group.allreduce([x]).wait())
    stand_in.synchronize(rank)
    group.shutdown()
    x = there(1.0 + rank, device=rank)
    again = backend_of(rank, size, store + "-again")
    again.allreduce([x]).wait()
    equal(x, [3.0])
    again.shutdown()


@pytest.mark.parametrize("body", [goes_on, frees_early, steps, gives_up])
@pytest.mark.parametrize("adversary", [0, 7])
def test_by_nccl(tmp_path, body, adversary):
    run(1, by_nccl, body, str(tmp_path / "store"), adversary, join=False)


def by_nccl(rank, size, body, store, adversary):
    on_threads(2, body, store, adversary)

# SPDX-License-Identifier: Apache-2.0
"""Tensors on a device, copied through host memory. A device written in Python replaces a GPU."""

import asyncio
import threading

import torch
import torch.distributed as dist

import tutti.aio
from ranks import run


class Elsewhere(torch.Tensor):
    """A tensor on the device "elsewhere"; `kept` holds its elements."""

    @staticmethod
    def __new__(cls, size, dtype):
        made = torch._C._acc.create_empty_tensor(torch.Size(size), dtype or torch.get_default_dtype())
        made.__class__ = cls
        return made

    def __init__(self, size, dtype):
        self.kept = torch.empty(size, dtype=dtype)


copies = {"there": 0, "back": 0}
before_copy = None


def make_device():
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend("elsewhere")

    @torch.library.impl("aten::empty.memory_format", "privateuseone")
    def empty(size, dtype=None, layout=None, device=None, pin_memory=False, memory_format=None):
        return Elsewhere(size, dtype)

    @torch.library.impl("aten::empty_strided", "privateuseone")
    def empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=False):
        return Elsewhere(size, dtype)

    @torch.library.impl("aten::_copy_from", "privateuseone")
    def copy_from(source, target, non_blocking=False):
        copies["there" if target.device.type == "elsewhere" else "back"] += 1
        if before_copy:
            before_copy()
        return getattr(target, "kept", target).copy_(getattr(source, "kept", source))


def there(*values):
    return torch.tensor(values).to("elsewhere")


def staged(rank, size, store):
    make_device()
    dist.init_process_group("cpu:tutti,elsewhere:tutti", init_method="file://" + store, rank=rank, world_size=size)
    x = there(1.0 + rank, 2.0)
    dist.all_reduce(x)
    assert x.device.type == "elsewhere" and x.kept.tolist() == [3.0, 4.0], x.kept
    before = dict(copies)
    work = dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True)
    work.wait()
    assert x.kept.tolist() == [3.0, 4.0]
    assert copies == {"there": before["there"] + 1, "back": before["back"] + 1}
    x = there(float(rank))
    dist.broadcast(x, 1)
    assert x.kept.item() == 1
    dist.reduce(x, 0)
    assert rank != 0 or x.kept.item() == 2
    pieces = [there(0.0) for _ in range(size)]
    dist.all_gather(pieces, there(float(rank)))
    assert [p.kept.item() for p in pieces] == [0, 1]
    out = there(0.0, 0.0)
    dist.all_gather_into_tensor(out, there(float(rank)))
    assert out.kept.tolist() == [0, 1]
    out = there(0.0)
    dist.reduce_scatter(out, [there(1.0), there(5.0)])
    assert out.kept.item() == (2, 10)[rank]
    out = there(0.0, 0.0)
    dist.all_to_all_single(out, there(1.0 + rank, 10.0 + rank))
    assert out.kept.tolist() == [[1, 2], [10, 11]][rank]
    if rank == 0:
        dist.send(there(7), 1)
    else:
        x = there(0)
        dist.recv(x, 0)
        assert x.kept.item() == 7
    dist.barrier()


def test_tensors_on_a_device_are_staged(tmp_path):
    run(2, staged, str(tmp_path / "store"), method="fork", join=False)


def cancels_a_copy(rank, size, store):
    """A cancelled task's tensor is free, even if the operation has ended and its result is being copied."""
    make_device()
    dist.init_process_group("cpu:tutti,elsewhere:tutti", init_method="file://" + store, rank=rank, world_size=size)
    if rank == 1:
        dist.recv(torch.empty(1), 0)
        dist.all_reduce(there(1.0))
        return
    copies_now, returned = threading.Event(), threading.Event()

    def wait_for_the_return():
        copies_now.set()
        returned.wait(0.5)

    async def body():
        global before_copy
        x = there(1.0)
        work = dist.all_reduce(x, async_op=True)
        before_copy = wait_for_the_return
        task = asyncio.ensure_future(tutti.aio.wait(work))
        await asyncio.sleep(0)
        dist.send(torch.ones(1), 1)
        while not copies_now.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        result = x.kept.item()
        returned.set()
        assert result == size, result

    asyncio.run(body())


def test_a_cancelled_task_frees_its_tensor(tmp_path):
    run(2, cancels_a_copy, str(tmp_path / "store"), method="fork", join=False, timeout=30)

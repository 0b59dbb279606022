# SPDX-License-Identifier: Apache-2.0
"""tutti.aio: works of torch.distributed in asyncio."""

import asyncio

import torch
import torch.distributed as dist

import tutti.aio
from ranks import run


def many(rank, size):
    async def one(i):
        x = torch.full((100,), float(i + rank))
        await tutti.aio.wait(dist.all_reduce(x, async_op=True))
        assert x[0].item() == size * i + sum(range(size))

    async def all_of_them():
        await asyncio.gather(*(one(i) for i in range(500)))
        # The event loop keeps running during a wait.
        x = torch.zeros(4)
        if rank == 0:
            work = dist.irecv(x, 1)
            beats = 0
            waiting = asyncio.ensure_future(tutti.aio.wait(work))
            while beats < 20:
                await asyncio.sleep(0.001)
                beats += 1
            assert not waiting.done()
            dist.send(torch.ones(1), 1)
            await waiting
            assert x[0].item() == 5
        elif rank == 1:
            await tutti.aio.wait(dist.irecv(torch.zeros(1), 0))
            await tutti.aio.wait(dist.isend(torch.full((4,), 5.0), 0))

    asyncio.run(all_of_them())
    asyncio.run(all_of_them())  # another event loop


def test_five_hundred_at_once_on_one_thread():
    run(2, many, method="fork")


def cancels(rank, size):
    group = dist.new_group(list(range(size)))

    async def body():
        x = torch.full((16 << 20,), 1.0)  # 64 MiB
        task = asyncio.ensure_future(tutti.aio.wait(dist.all_reduce(x, group=group, async_op=True)))
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
            raise AssertionError("not cancelled")
        except asyncio.CancelledError:
            pass
        x.fill_(7)  # the buffer belongs to this rank again
        dist.barrier()
        await asyncio.sleep(0.1)
        assert (x == 7).all()

    async def other():
        x = torch.full((16 << 20,), 1.0)
        work = dist.all_reduce(x, group=group, async_op=True)
        try:
            await tutti.aio.wait(work)
            raise AssertionError("nobody took it back")
        except RuntimeError as e:
            assert "rank 0" in str(e), e
        dist.barrier()

    asyncio.run(body() if rank == 0 else other())
    # A cancelled receive loses no message.
    async def receive():
        x = torch.zeros(3)
        task = asyncio.ensure_future(tutti.aio.wait(dist.irecv(x, 1)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        dist.barrier()
        y = torch.zeros(3)
        await tutti.aio.wait(dist.irecv(y, 1))
        assert y[0].item() == 4 and x[0].item() == 0

    if rank == 0:
        asyncio.run(receive())
    else:
        dist.barrier()
        if rank == 1:
            dist.send(torch.full((3,), 4.0), 0)


def test_cancelling_frees_the_tensor():
    run(2, cancels, method="fork")


def chunks(rank, size):
    async def body():
        x = torch.arange(1000.0)
        seen = 0
        async for piece in tutti.aio.all_reduce_chunks(x, 7):
            assert (piece == torch.arange(float(seen), float(seen + piece.numel())) * size).all()
            seen += piece.numel()
        assert seen == 1000

    asyncio.run(body())


def test_chunks_as_they_come():
    run(2, chunks, method="fork")



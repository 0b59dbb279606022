# SPDX-License-Identifier: Apache-2.0
"""Works of torch.distributed in asyncio, where the process group's backend is tutti.

    work = dist.all_reduce(tensor, async_op=True)
    await tutti.aio.wait(work)

One thread can wait for any number of works, through one descriptor per event loop. Cancelling a waiting task cancels
its transfer: the tensor may be reused when the await returns. (A collective that one rank cancels fails on all ranks
and names that rank.)
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from typing import AsyncIterator

import torch
import torch.distributed as dist

from . import _load

__all__ = ["wait", "all_reduce_chunks"]

# By event loop.
_finished_works: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _FinishedWorks] = weakref.WeakKeyDictionary()


class _FinishedWorks:
    """One descriptor that the event loop watches; finished works notify it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.native = _load().FinishedWorks()
        self.waiting: dict[int, asyncio.Future[None]] = {}
        self.numbers = itertools.count()
        loop.add_reader(self.native.fileno(), self.drain)

    def drain(self) -> None:
        for number in self.native.drain():
            future = self.waiting.pop(number, None)
            if future is not None and not future.done():
                future.set_result(None)


async def wait(work: dist.Work) -> None:
    """Completes when `work` does, and raises its error. Cancellation cancels the transfer."""
    if not work.is_completed():
        loop = asyncio.get_running_loop()
        finished = _finished_works.get(loop)
        if finished is None:
            finished = _finished_works[loop] = _FinishedWorks(loop)
        number = next(finished.numbers)
        future = finished.waiting[number] = loop.create_future()
        finished.native.watch(work, number)
        try:
            await future
        except asyncio.CancelledError:
            finished.waiting.pop(number, None)
            _load().cancel(work)
            raise
    work.wait()


async def all_reduce_chunks(
    tensor: torch.Tensor,
    chunks: int,
    op: dist.ReduceOp | dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
) -> AsyncIterator[torch.Tensor]:
    """Starts an all_reduce of `tensor` in about `chunks` pieces along its first dimension.

    Yields each piece when it is complete, so that it can be used while the others are still being reduced.
    """
    works = [(piece, dist.all_reduce(piece, op=op, group=group, async_op=True)) for piece in tensor.chunk(chunks)]
    for piece, work in works:
        await wait(work)
        yield piece

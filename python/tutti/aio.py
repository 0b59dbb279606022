# SPDX-License-Identifier: Apache-2.0
"""Works of torch.distributed in asyncio, where the process group's backend is tutti.

    work = dist.all_reduce(tensor, async_op=True)
    await tutti.aio.wait(work)

Any number of works at once, on one thread, through one descriptor for each event loop. A task that is cancelled
while it waits takes its transfer back: the tensor is free when the await returns. (A collective that one rank
takes back fails on all ranks, naming it.)
"""

import asyncio
import itertools
import os
import weakref

import torch.distributed as dist

from . import _load

__all__ = ["wait", "all_reduce_chunks"]

_doors = weakref.WeakKeyDictionary()  # by event loop


class _Door:
    """Where finished works notify: one descriptor that the event loop watches."""

    def __init__(self, loop):
        self.native = _load().Door()
        self.waiting = {}
        self.numbers = itertools.count()
        loop.add_reader(self.native.fileno(), self.drain)

    def drain(self):
        for number in self.native.drain():
            future = self.waiting.pop(number, None)
            if future is not None and not future.done():
                future.set_result(None)


async def wait(work):
    """Completes when `work` has; raises what it failed with. Cancelling takes the transfer back."""
    if not work.is_completed():
        loop = asyncio.get_running_loop()
        door = _doors.get(loop)
        if door is None:
            door = _doors[loop] = _Door(loop)
        number = next(door.numbers)
        future = door.waiting[number] = loop.create_future()
        door.native.watch(work, number)
        try:
            await future
        except asyncio.CancelledError:
            door.waiting.pop(number, None)
            _load().cancel(work)
            raise
    work.wait()


async def all_reduce_chunks(tensor, chunks, op=dist.ReduceOp.SUM, group=None):
    """An all_reduce of `tensor` in about `chunks` pieces along its first dimension: yields each when it is done.

    All are under way from the beginning, so that what is yielded can be used while the others move.
    """
    works = [(piece, dist.all_reduce(piece, op=op, group=group, async_op=True)) for piece in tensor.chunk(chunks)]
    for piece, work in works:
        await wait(work)
        yield piece

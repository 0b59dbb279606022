# SPDX-License-Identifier: Apache-2.0
"""Worlds of processes for the tests: run(size, body) starts them, and fails with the errors of any process."""

import os
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

patience = 100  # seconds, for all of a world


def _rank(body, rank, size, store, errors, backend, join, arguments):
    torch.set_num_threads(1)
    try:
        if join:
            dist.init_process_group(backend, init_method="file://" + store, rank=rank, world_size=size)
        body(rank, size, *arguments)
    except BaseException:
        errors.put((rank, traceback.format_exc()))
        sys.stdout.flush()
        os._exit(1)


def run(size, body, *arguments, backend="tutti", method="spawn", join=True, expected=None, timeout=patience):
    """Runs body(rank, size, *arguments) in `size` processes. Returns their exit codes: `expected`, or else all 0."""
    context = mp.get_context(method)
    errors = context.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="tutti-") as folder:
        store = os.path.join(folder, "store")
        processes = [
            context.Process(target=_rank, args=(body, rank, size, store, errors, backend, join, arguments))
            for rank in range(size)
        ]
        for p in processes:
            p.start()
        end = time.monotonic() + timeout
        for p in processes:
            p.join(max(0.1, end - time.monotonic()))
        late = [rank for rank, p in enumerate(processes) if p.is_alive()]
        for p in processes:
            p.kill()
            p.join()
        said = []
        while not errors.empty():
            said.append("rank %d: %s" % errors.get())
        assert not late, f"ranks {late} did not end; {said}"
        codes = [p.exitcode for p in processes]
        if expected is None:
            assert codes == [0] * size, "\n".join(said) or codes
        else:
            assert codes == expected, "\n".join(said) or codes
        return codes


def raises(kind, text, f, *arguments, **named):
    try:
        f(*arguments, **named)
    except kind as e:
        assert text in str(e), f"'{text}' is not in: {e}"
        return str(e)
    raise AssertionError(f"no {kind.__name__} with '{text}'")

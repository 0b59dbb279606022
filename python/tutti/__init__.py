# SPDX-License-Identifier: Apache-2.0
"""tutti for PyTorch: the backend "tutti" of torch.distributed.

    import torch.distributed as dist
    dist.init_process_group("tutti")

PyTorch 2.15 and later find the backend by themselves. The C++ part is built once for each minor version of PyTorch,
and is loaded by the first process group.
"""

import atexit
import functools
import importlib
import os
import pathlib
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

__all__ = ["ddp", "shrink"]
__version__ = "0.1.0"


_rebuild = (
    "in a clone of tutti, build it again: pip install --no-build-isolation --no-deps --force-reinstall ./python"
)


@functools.cache
def _load() -> Any:
    """Returns the C++ part. Raises ImportError if the wheel has none for the PyTorch that is here."""
    import torch

    minor = torch.__version__.split("+")[0].split(".")[:2]
    try:
        return importlib.import_module("._C_" + "_".join(minor), __name__)
    except ImportError as failure:
        modules = pathlib.Path(__file__).parent.glob("_C_*.so")
        built = ", ".join(sorted(m.name.split(".")[0][3:].replace("_", ".") for m in modules)) or "no version"
        raise ImportError(
            f"this tutti was built for PyTorch {built}, and PyTorch {torch.__version__} is here: {_rebuild}"
        ) from failure


def _create(options, backend_options=None, name="tutti"):
    native = _load()
    _at_end(_shut_down)
    return native.create(options, name)


_ends = []
_ends_of = None  # the process that calls these at its end


def _at_end(shut_down):
    """Calls shut_down() once at any end of Python, after the program's threads have ended."""
    global _ends_of
    if _ends_of != os.getpid():  # a child that multiprocessing forks has lost what its parent registered
        _ends_of = os.getpid()
        _ends.clear()
        from multiprocessing import util

        # Processes of multiprocessing may run no atexit handlers; others run both.
        util.Finalize(None, _end_after_threads, exitpriority=10)
    if shut_down not in _ends:
        _ends.append(shut_down)


def _end_after_threads():
    """Before Python 3.13 a process of multiprocessing calls this while the program's threads may still communicate."""
    if not threading.main_thread().is_alive():  # Python has waited for them
        return _end()

    def end():
        here = (threading.current_thread(), threading.main_thread())
        while others := [t for t in threading.enumerate() if t.is_alive() and not t.daemon and t not in here]:
            others[0].join()
        _end()

    threading.Thread(target=end, daemon=False).start()


def _end():
    while _ends_of == os.getpid() and _ends:
        _ends.pop(0)()


atexit.register(_end)  # at `import torch`, so that it runs after the program's handlers


def _shut_down():
    """Completes all sends and tells the other ranks that this one leaves."""
    native = _load()
    native.cancel_receives()
    _destroy_groups()
    native.shut_down(5.0)


def _destroy_groups():
    """Destroys all groups, and prints what they raise. Each raises once that its ranks differed in their last calls."""
    import torch.distributed as dist

    for _ in range(len(dist.distributed_c10d._world.pg_map) + 1):
        if not dist.is_initialized():
            return
        try:
            dist.destroy_process_group()
        except Exception as failure:
            print(failure, file=sys.stderr)


def _average(group, bucket):
    import torch.distributed as dist

    gradients, op, divisor = bucket.buffer(), dist.ReduceOp.AVG, 1
    if gradients.is_sparse:
        op, divisor = dist.ReduceOp.SUM, group.size()
    work = dist.all_reduce(gradients, op=op, group=group, async_op=True)
    return work.get_future().then(lambda all: all.value()[0] if divisor == 1 else all.value()[0] / divisor)


def ddp(model: "torch.nn.Module", **options: Any) -> "torch.nn.parallel.DistributedDataParallel":
    """Returns `model` in torch's DistributedDataParallel, with the settings that measure best on tutti: gradients are
    views of the buckets, and the ranks average these by AVG, so that no pass over them divides. `options` are
    those of DistributedDataParallel. The group's backend has AVG, as tutti's. The result has a communication hook, and
    takes no other."""
    from torch.nn.parallel import DistributedDataParallel

    made = DistributedDataParallel(model, **{"gradient_as_bucket_view": True, **options})
    made.register_comm_hook(made.process_group, _average)
    return made


def _own_address(store):
    """Returns the name or address by which the ranks that reach the host of `store` reach this one."""
    import socket

    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = getattr(store, "host", None) or os.environ.get("MASTER_ADDR") or socket.gethostname()
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as s:
            s.connect(place)  # sends nothing
            own = s.getsockname()[0]
    except OSError:
        return host
    # Its name on its own host may be a loopback address.
    return host if own.startswith("127.") or own == "::1" else own


def shrink(group: "dist.ProcessGroup | None" = None) -> "dist.ProcessGroup":
    """The ranks that are left after a failure go on: returns their group.

    All of them call it, whatever the failure was. They agree on the list, even if more die meanwhile, and keep
    their order. Without `group`, or with the default group, all groups are destroyed and the default group is
    made anew: ranks are counted from 0 again, and it has a store of its own, because the old one may have died
    with its process. Another group is made beside the old one, and the default group's store must live.
    Raises what names a rank that lives but did not call within the group's timeout. What the old groups raise at
    their end is printed. The old group's works have ended. Tensors and modules stay; their wrappers, such as
    DistributedDataParallel, are to be made again."""
    import torch.distributed as dist

    failed = dist.group.WORLD if group is None else group
    if not isinstance(failed, dist.ProcessGroup):
        raise ValueError("tutti.shrink takes a process group that this rank is a member of")
    whole = failed is dist.group.WORLD
    backend = next(
        (b for b in map(failed._get_backend, failed._device_types) if hasattr(b, "survivors")), None
    )
    if backend is None:
        raise ValueError("tutti.shrink takes a process group with the backend tutti")
    named, timeout, device = dist.get_backend_config(failed), backend.timeout, failed.bound_device_id
    members = dist.get_process_group_ranks(failed)
    store = []

    def offer():
        if not whole:
            return ""
        host = _own_address(dist.distributed_c10d._get_default_store())
        store.append(dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timeout))
        return f"{host} {store[0].port}"

    ranks, place = backend.survivors(offer)
    rank = ranks.index(failed.rank())
    if not whole:
        return dist.new_group(
            [members[r] for r in ranks], timeout, named, use_local_synchronization=True, device_id=device
        )
    if not store:
        host, port = place.split()
        store.append(dist.TCPStore(host, int(port), timeout=timeout))
    del backend, failed, group
    _destroy_groups()
    dist.init_process_group(
        named, store=store[0], rank=rank, world_size=len(ranks), timeout=timeout, device_id=device
    )
    return dist.group.WORLD


def _register():
    import torch.distributed as dist

    if "TUTTI" not in dist.Backend._plugins:
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu", "cuda"])


def _autoload():
    """Run at every `import torch`, because PyTorch before 2.15 does not look up entry points of backends."""
    try:
        _register()
    except Exception:  # an exception here would break `import torch`
        pass

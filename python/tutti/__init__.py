# SPDX-License-Identifier: Apache-2.0
"""tutti for PyTorch: the backend "tutti" of torch.distributed.

    import torch.distributed as dist
    dist.init_process_group("tutti")

PyTorch 2.15 and later find the backend by themselves. The C++ part is built for one minor version of PyTorch,
and is loaded by the first process group.
"""

import atexit
import os
import sys

__all__ = []
__version__ = "0.1.0"


_rebuild = (
    "in a clone of tutti, build it again: pip install --no-build-isolation --no-deps --force-reinstall ./python"
)


def _load():
    """Returns the C++ part. Raises ImportError if it was built for another PyTorch."""
    import torch

    def minor(version):
        return ".".join(version.split("+")[0].split(".")[:2])

    try:
        from . import _C
    except ImportError as failure:
        raise ImportError(
            f"tutti was built for another PyTorch than {torch.__version__}, which is here: {_rebuild}"
        ) from failure
    if minor(_C.torch_version) != minor(torch.__version__):
        raise ImportError(
            f"tutti was built for PyTorch {_C.torch_version}, and this is {torch.__version__}: {_rebuild}"
        )
    return _C


def _create(options, backend_options=None, name="tutti"):
    native = _load()
    _at_end()
    return native.create(options, name)


_used_in = None  # process that has made a group


def _at_end():
    """At any end of Python, completes all sends and tells the other ranks that this one leaves."""
    global _used_in
    if _used_in == os.getpid():
        return
    _used_in = os.getpid()  # a child that multiprocessing forks has lost what its parent registered
    from multiprocessing import util

    # Processes of multiprocessing run no atexit handlers. Others run both, and the second has no effect.
    util.Finalize(None, _shut_down, exitpriority=10)


def _shut_down():
    if _used_in != os.getpid():
        return
    import torch.distributed as dist

    native = _load()
    native.cancel_receives()
    if dist.is_initialized():
        try:
            dist.destroy_process_group()
        except Exception as failure:  # the program ends, and no caller is left
            print(failure, file=sys.stderr)
    native.shut_down(5.0)


def _register():
    import torch.distributed as dist

    if "TUTTI" not in dist.Backend._plugins:
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu", "cuda"])
        atexit.register(_shut_down)  # at `import torch`, so that it runs after the program's handlers


def _autoload():
    """Run at every `import torch`, because PyTorch before 2.15 does not look up entry points of backends."""
    try:
        _register()
    except Exception:  # an exception here would break `import torch`
        pass

# SPDX-License-Identifier: Apache-2.0
"""tutti for PyTorch: the backend "tutti" of torch.distributed.

    import torch.distributed as dist
    dist.init_process_group("tutti")

PyTorch 2.15 and later finds the backend by itself. The C++ part is built for one minor version of PyTorch,
and is loaded by the first process group.
"""

import atexit

__all__ = []


def _load():
    """The C++ part. ImportError: it is of another PyTorch."""
    import torch

    def minor(version):
        return ".".join(version.split("+")[0].split(".")[:2])

    try:
        from . import _C
    except ImportError as failure:
        raise ImportError(
            f"tutti was built for another PyTorch than {torch.__version__}, which is here: "
            "install tutti-torch again, by pip install --no-build-isolation --force-reinstall tutti-torch"
        ) from failure
    if minor(_C.torch_version) != minor(torch.__version__):
        raise ImportError(
            f"tutti was built for PyTorch {_C.torch_version}, and this is {torch.__version__}: "
            "install tutti-torch again, by pip install --no-build-isolation --force-reinstall tutti-torch"
        )
    return _C


def _create(options, backend_options=None, name="tutti"):
    native = _load()
    _at_end()
    return native.create(options, name)


_registered_end = False


def _at_end():
    """What was sent arrives, and the other ranks are told that this one leaves, however Python ends."""
    global _registered_end
    if _registered_end:
        return
    _registered_end = True
    from multiprocessing import util

    # A process of multiprocessing runs no atexit handlers; others run both, the second to no effect.
    util.Finalize(None, _shut_down, exitpriority=10)
    atexit.register(_shut_down)


def _shut_down():
    import torch.distributed as dist

    if dist.is_initialized():
        try:
            dist.destroy_process_group()
        except Exception:  # the program ends: nobody is left to tell
            pass
    _load().shut_down(5.0)


def _register():
    import torch.distributed as dist

    if "TUTTI" not in dist.Backend._plugins:
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu", "cuda"])


def _autoload():
    """Run at every `import torch` before PyTorch 2.15, where entry points of backends are not looked up."""
    try:
        _register()
    except Exception:  # an exception here would break `import torch`
        pass

# SPDX-License-Identifier: Apache-2.0
"""The futures of works. Loaded by the first one."""

import torch

from . import _load

_C = _load()


def _marked(callback):
    def call(done):
        before = _C.set_in_callback(True)
        try:
            return callback(done)
        finally:
            _C.set_in_callback(before)

    return call


class Future(torch._C.Future):
    """A future whose callbacks let the backend know that the collectives they start are a callback's.

    PyTorch calls back at once, in the thread that calls then(), or later in another one, which differs between ranks.
    """

    def then(self, callback):
        return _C.marked(super().then(_marked(callback)))

    def add_done_callback(self, callback):
        super().add_done_callback(_marked(callback))

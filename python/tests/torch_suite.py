# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of a backend, with tutti instead of Gloo.

    BACKEND=gloo WORLD_SIZE=2 python torch_suite.py [unittest's options]           with tutti
    BACKEND=tutti WORLD_SIZE=2 python torch_suite.py ...                           under its own name, which skips more
    REAL_GLOO=1 BACKEND=gloo WORLD_SIZE=2 python torch_suite.py ...                with Gloo, to compare

The tests choose their expectations by the name of the backend, so tutti runs under the name gloo. Processes are
forked, which is ten times as fast as starting Python anew.
"""

import functools
import os
import tempfile

os.environ.setdefault("BACKEND", "gloo")
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="tutti-suite-"))
os.environ.setdefault("INIT_METHOD", "file://" + os.path.join(os.environ["TEMP_DIR"], "shared_init_file"))
for folder in ("barrier", "test_dir", "init_dir"):
    os.makedirs(os.path.join(os.environ["TEMP_DIR"], folder), exist_ok=True)

import torch
import torch.distributed as dist

torch.set_num_threads(1)

if not os.environ.get("REAL_GLOO"):
    import tutti

    create = functools.partial(tutti._create, name="gloo")
    dist.Backend.register_backend("gloo", create, extended_api=True, devices=["cpu", "cuda"])
    tutti._load()

from torch.testing._internal.common_utils import run_tests
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend


class TestInPlaceOfGloo(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


if __name__ == "__main__":
    run_tests()

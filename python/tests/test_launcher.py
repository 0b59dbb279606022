# SPDX-License-Identifier: Apache-2.0
"""Programs that tutti-run starts: PyTorch's store is at the MASTER_PORT that it sets."""

import os
import subprocess
import sys

import pytest

program = """
import sys, torch, torch.distributed as dist
dist.init_process_group(sys.argv[1])
x = torch.ones(3)
dist.all_reduce(x)
assert x.tolist() == [2.0] * 3, x
dist.destroy_process_group()
print("summed", flush=True)
"""


@pytest.mark.parametrize("backend", ["tutti", "gloo"])
def test_rank_0_has_the_port(backend):
    launcher = os.environ.get("TUTTI_RUN_PATH")
    if not launcher:
        pytest.skip("needs tutti-run: its CMake build runs these tests with it")
    ended = subprocess.run([launcher, "-n", "2", sys.executable, "-c", program, backend], capture_output=True, text=True,
                           timeout=200)
    assert ended.returncode == 0 and ended.stdout.count("summed") == 2, ended

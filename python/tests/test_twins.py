# SPDX-License-Identifier: Apache-2.0
"""One training by DistributedDataParallel over tutti, over Gloo, and in C++: all losses are the same."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

DDP = pathlib.Path(__file__).resolve().parents[2] / "examples" / "torch" / "ddp.py"


def losses(command):
    said = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert said.returncode == 0, said.stdout + said.stderr
    found = {0: [], 1: []}
    # Output of the two ranks may be mixed within a line.
    for rank, loss in re.findall(r"rank ([01]) loss (\d+\.\d{7})", said.stdout):
        found[int(rank)].append(float(loss))
    assert len(found[0]) == len(found[1]) == 22
    return found


@pytest.fixture(scope="module")
def over_tutti():
    return losses([sys.executable, DDP, "--backend", "tutti", "--epochs", "2", "--losses"])


def agree(a, b):
    return all(abs(x - y) < 1e-5 for rank in (0, 1) for x, y in zip(a[rank], b[rank]))


def test_gloo(over_tutti):
    assert agree(over_tutti, losses([sys.executable, DDP, "--backend", "gloo", "--epochs", "2", "--losses"]))


def test_cpp(over_tutti):
    launcher, program = os.environ.get("TUTTI_RUN_PATH"), os.environ.get("TUTTI_TORCH_TRAIN_MNIST_PATH")
    if not (launcher and program):
        pytest.skip("torch_train_mnist: its CMake build runs these tests with it")
    assert agree(over_tutti, losses([launcher, "-n", "2", program, "--epochs", "2", "--losses", "1"]))

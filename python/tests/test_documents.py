# SPDX-License-Identifier: Apache-2.0
"""The Python of docs/pytorch.md, run in order by a world of one rank."""

import ast
import asyncio
import inspect
import os
import pathlib
import re

import torch

from ranks import run

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pytorch.md"


def page(rank, size, folder):
    os.chdir(folder)
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    pathlib.Path("weights.bin").write_bytes(b"1")
    names = {"x": torch.ones(16), "model": torch.nn.Linear(4, 4), "use": lambda piece: None}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 5

    async def all_of_them():
        for block in blocks:
            done = eval(compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.iscoroutine(done):
                await done

    asyncio.run(all_of_them())
    assert pathlib.Path("checkpoint").is_dir() and pathlib.Path("runs/run-7").is_dir()


def test_the_page_runs(tmp_path):
    run(1, page, str(tmp_path), method="fork", join=False)

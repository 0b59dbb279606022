# SPDX-License-Identifier: Apache-2.0
"""The Python of docs/pytorch.md, run in order by a world of one rank, and what the wheel contains."""

import ast
import asyncio
import importlib.metadata
import inspect
import os
import pathlib
import re
import subprocess

import torch

import tutti
import tutti.aio
import tutti.track
from ranks import raises, run

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


def test_the_module_needs_no_libraries_of_the_distribution():
    """Those that it contains may have other names where it runs, or be missing."""
    module = tutti._load().__file__
    said = subprocess.run(["readelf", "-d", module], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"NEEDED.*\[(.*?)\]", said)
    rest = [n for n in needed if not re.match(r"lib(c10|torch_cpu|torch_python|stdc\+\+|gcc_s|c|m|dl|rt|pthread)\.|ld-linux", n)]
    assert needed and not rest, rest


def test_another_pytorch_is_told(monkeypatch):
    here = ".".join(torch.__version__.split(".")[:2])
    monkeypatch.setattr(torch, "__version__", "1.2.3")
    text = raises(ImportError, "and PyTorch 1.2.3 is here: ", tutti._load.__wrapped__)
    assert here in text.split(", and")[0], text


def test_the_wheel_says_what_it_contains():
    names = [p.name for p in importlib.metadata.files("tutti-torch") or ()]
    for name in ("LICENSE", "THIRD_PARTY.txt", "LGPL-3.0.txt", "GPL-3.0.txt"):
        assert name in names, names


def test_type_checkers_know_all_parameters():
    """`py.typed` promises it."""
    assert any(p.name == "py.typed" for p in importlib.metadata.files("tutti-torch") or ())
    known = 0
    for module in (tutti, tutti.aio, tutti.track):
        for public in (getattr(module, name) for name in module.__all__):
            members = inspect.getmembers(public, inspect.isfunction) if inspect.isclass(public) else [("", public)]
            for name, f in members:
                if name.startswith("_") and name not in ("__init__", "__enter__", "__exit__"):
                    continue
                signature = inspect.signature(f)
                assert signature.return_annotation is not signature.empty, f
                unknown = [p for p in signature.parameters.values() if p.annotation is p.empty and p.name != "self"]
                assert not unknown, (f, unknown)
                known += 1
    assert known > 12, known

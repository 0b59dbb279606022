# SPDX-License-Identifier: Apache-2.0
"""tutti.track: records that Python and C++ write into one run, read back from its files."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import util

import pytest
import torch

import tutti.track
from ranks import run as run_ranks

quiet = {"console": False, "system_metrics": 0.0}


def lines(run, stem, name=None, kind=None):
    """The records of a label; its file has the stem rank-<r> for rank_<r>, and label-<label> for others."""
    with (pathlib.Path(run) / f"{stem}.jsonl").open() as file:
        read = [json.loads(line) for line in file]
    return [r for r in read if name in (None, r.get("name")) and kind in (None, r["kind"])]


def curve(run, stem, name):
    return [(r["step"], r["value"]) for r in lines(run, stem, name, "scalar")]


def python(program, *arguments, **environment):
    """Runs a Python process."""
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )


def state_of(run, stem):
    found = [p for p in pathlib.Path(run).rglob("*.json") if p.name.startswith(stem) and "state" in p.read_text()]
    assert len(found) == 1, found
    return json.loads(found[0].read_text())["state"]


def test_everything_is_read_back(tmp_path):
    model = tmp_path / "model.bin"
    model.write_bytes(b"weights" * 1000)
    with tutti.track.open("run-7", label="rank_0", directory=tmp_path / "runs", **quiet) as log:
        for step in range(100):
            log.scalar("loss", 1 / (1 + step), step=step)
        log.scalar("tensor", torch.tensor(2.5), 1)
        log.text("remark", "gr\u00fc\u00dfe", step=4)
        log.hyperparameters({"lr": 0.1, "layers": 3, "bias": True, "name": "net", "shape": (2, 3), "big": 1 << 70})
        log.hyperparameters({"tensor": torch.tensor(4)})
        log.image("grey", torch.zeros(4, 6, dtype=torch.uint8), step=1)
        log.image("rgb", torch.zeros(4, 6, 3, dtype=torch.uint8).numpy(), step=1)
        log.artifact("model.bin", model)
        log.artifact("folder/bytes", b"abc")
    totals = log.finish()
    assert totals.complete and totals.dropped == 0 and totals.failed == 0, totals
    assert totals == log.so_far()
    log.scalar("late", 1, 1)
    run = pathlib.Path(log.directory)
    assert run == tmp_path / "runs" / "run-7"
    assert curve(run, "rank-0", "loss") == [(step, 1 / (1 + step)) for step in range(100)]
    assert curve(run, "rank-0", "tensor") == [(1, 2.5)]
    assert curve(run, "rank-0", "late") == []
    assert [r["value"] for r in lines(run, "rank-0", "remark")] == ["gr\u00fc\u00dfe"]
    given = [r["values"] for r in lines(run, "rank-0", kind="hyperparameters")]
    assert given == [
        {"lr": 0.1, "layers": 3, "bias": True, "name": "net", "shape": "(2, 3)", "big": str(1 << 70)},
        {"tensor": 4},
    ]
    assert given[0]["bias"] is True
    shapes = [(r["name"], r["width"], r["height"]) for r in lines(run, "rank-0", kind="image")]
    assert shapes == [("grey", 6, 4), ("rgb", 6, 4)]
    files = {r["name"]: (run / r["file"]).read_bytes() for r in lines(run, "rank-0", kind="artifact")}
    assert files == {"model.bin": model.read_bytes(), "folder/bytes": b"abc"}
    (events,) = (run / "rank_0").glob("events.out.tfevents.*")
    assert b"hparams" in events.read_bytes()
    assert state_of(run, "rank-0") == "finished"


def test_errors_name_what_is_wrong(tmp_path):
    def refused(kind, text, *arguments, **named):
        with pytest.raises(kind, match=text):
            tutti.track.open(*arguments, directory=tmp_path / "runs", **quiet, **named)

    refused(ValueError, "id", "")
    refused(ValueError, "id", "a/b")
    refused(ValueError, "label", "a", label="a/b")
    refused(ValueError, "resume", "a", resume="perhaps")
    refused(ValueError, "layout", "a", layout="none")
    assert not (tmp_path / "runs" / "a").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        tutti.track.open("a", directory=tmp_path / "file", **quiet)
    with tutti.track.open("a", label="b", directory=tmp_path / "runs", **quiet) as log:
        for pixels in (torch.zeros(4, dtype=torch.uint8), torch.zeros(4, 4), torch.zeros(2, 2, 2, dtype=torch.uint8)):
            with pytest.raises(ValueError, match="an image has"):
                log.image("i", pixels)
        with pytest.raises(TypeError):
            log.scalar("loss", None, 1)
        log.artifact("../outside", b"abc")
        log.artifact("missing", tmp_path / "missing")
        totals = log.finish()
    assert (totals.dropped, totals.failed) == (1, 1) and "missing" in totals.failure, totals


def test_resume_is_kept_to(tmp_path):
    with pytest.raises(ValueError, match="run-7"):
        tutti.track.open("run-7", label="a", directory=tmp_path, resume="must", **quiet)
    assert not (tmp_path / "run-7").exists()
    with tutti.track.open("run-7", label="a", directory=tmp_path, resume="never", **quiet) as log:
        log.scalar("loss", 1, 0)
    with pytest.raises(ValueError, match="run-7"):
        tutti.track.open("run-7", label="a", directory=tmp_path, resume="never", **quiet)
    with tutti.track.open("run-7", label="a", directory=tmp_path, resume="must", **quiet) as log:
        log.scalar("loss", 2, 1)
    assert curve(tmp_path / "run-7", "label-a", "loss") == [(0, 1), (1, 2)]


def test_a_label_has_one_writer(tmp_path):
    with tutti.track.open("run-7", label="a", directory=tmp_path, **quiet) as first:
        with pytest.raises(ValueError, match='another log writes to the label "a"'):
            tutti.track.open("run-7", label="a", directory=tmp_path, **quiet)
        other = python(
            "import sys, tutti.track; tutti.track.open('run-7', label='a', directory=sys.argv[1])", tmp_path
        )
        assert other.returncode == 1 and "ValueError: another log writes to the label" in other.stderr, other.stderr
        with tutti.track.open("run-7", label="b", directory=tmp_path, **quiet) as second:
            second.scalar("loss", 2, 0)
        first.scalar("loss", 1, 0)
    assert curve(tmp_path / "run-7", "label-a", "loss") == [(0, 1)]
    assert curve(tmp_path / "run-7", "label-b", "loss") == [(0, 2)]


def test_the_label_is_that_of_the_rank(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    with tutti.track.open("run-7", directory=tmp_path, **quiet) as log:
        log.scalar("loss", 1, 0)
    assert curve(tmp_path / "run-7", "rank-3", "loss") == [(0, 1)]
    monkeypatch.delenv("RANK")
    with tutti.track.open("run-7", directory=tmp_path, **quiet) as log:
        log.scalar("loss", 1, 0)
    (mine,) = (tmp_path / "run-7").glob(f"label-*_{os.getpid()}.jsonl")
    assert curve(tmp_path / "run-7", mine.stem, "loss") == [(0, 1)]


def test_threads_say_at_once(tmp_path):
    with tutti.track.open("run-7", label="a", directory=tmp_path, **quiet) as log:
        threads = [
            threading.Thread(target=lambda t=t: [log.scalar(f"s{t}", i, i) for i in range(2000)]) for t in range(4)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    for t in range(4):
        assert curve(tmp_path / "run-7", "label-a", f"s{t}") == [(i, i) for i in range(2000)]


def test_a_block_that_raises_is_no_finish(tmp_path):
    with pytest.raises(KeyError):
        with tutti.track.open("run-7", label="a", directory=tmp_path, **quiet) as log:
            log.scalar("loss", 1, 0)
            raise KeyError("program")
    assert state_of(tmp_path / "run-7", "label-a") == "closed"
    assert curve(tmp_path / "run-7", "label-a", "loss") == [(0, 1)]


ends = """
import sys, tutti.track
print("before")
log = tutti.track.open("run-7", label="a", directory=sys.argv[1])
for i in range(1000):
    log.scalar("loss", i, i)
print("said")
"""


@pytest.mark.parametrize("how, code", [("", 0), ("del log", 0), ("raise KeyError(1)", 1), ("sys.exit(3)", 3),
                                       ("import atexit; atexit.register(log.finish)", 0)])
def test_a_program_that_ends_without_a_finish(tmp_path, how, code):
    begin = time.monotonic()
    ended = python(ends + how, tmp_path, PYTHONUNBUFFERED="")
    assert ended.returncode == code and ended.stdout == "before\nsaid\n", ended
    assert (tmp_path / "run-7" / "console" / "label-a.out").read_text() == "said\n"
    assert time.monotonic() - begin < 60
    assert curve(tmp_path / "run-7", "label-a", "loss") == [(i, i) for i in range(1000)]
    assert state_of(tmp_path / "run-7", "label-a") == ("finished" if "finish" in how else "closed")
    # The label can be opened again.
    with tutti.track.open("run-7", label="a", directory=tmp_path, **quiet):
        pass


def test_a_program_that_is_killed(tmp_path):
    ended = python(ends + "import os; os.kill(os.getpid(), 9)", tmp_path)
    assert ended.returncode == -signal.SIGKILL
    with tutti.track.open("run-7", label="a", directory=tmp_path, **quiet) as log:
        log.scalar("after", 1, 0)
    assert curve(tmp_path / "run-7", "label-a", "after") == [(0, 1)]


forks = """
import os, sys, tutti.track
log = tutti.track.open("run-7", label="parent", directory=sys.argv[1], console=False)
log.scalar("loss", 1, 0)
child = os.fork()
if child == 0:
    try:
        log.scalar("loss", 2, 1)
    except RuntimeError as e:
        assert "forked" in str(e), e
        with tutti.track.open("run-7", label="child", directory=sys.argv[1], console=False) as own:
            own.scalar("loss", 3, 1)
        sys.exit(7)
    sys.exit(8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
log.scalar("loss", 4, 2)
assert log.finish().complete
"""


def test_a_forked_child_opens_its_own(tmp_path):
    ended = python(forks, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert curve(tmp_path / "run-7", "label-parent", "loss") == [(0, 1), (2, 4)]
    assert curve(tmp_path / "run-7", "label-child", "loss") == [(1, 3)]


def open_in_a_group(rank, size, directory):
    log = tutti.track.open("run-7", label=f"rank_{rank}", directory=directory, **quiet)
    for step in range(100):
        loss = torch.tensor([float(rank)])
        torch.distributed.all_reduce(loss)
        log.scalar("loss", loss, step)
    returned = threading.Event()
    util.Finalize(None, returned.set, exitpriority=1)  # after tutti's; since Python 3.13 also after the threads
    threading.Thread(target=lambda: (returned.wait(1), log.scalar("late", 1, 0))).start()


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_ranks_of_a_group_that_end_without_a_finish(tmp_path, method):
    with tutti.track.open("run-7", label="parent", directory=tmp_path, **quiet) as log:
        run_ranks(2, open_in_a_group, tmp_path, method=method)
        log.scalar("loss", 1, 0)
    for rank in range(2):
        assert curve(tmp_path / "run-7", f"rank-{rank}", "loss") == [(step, 1) for step in range(100)]
        assert curve(tmp_path / "run-7", f"rank-{rank}", "late") == [(0, 1)]
        assert state_of(tmp_path / "run-7", f"rank-{rank}") == "closed"
    assert curve(tmp_path / "run-7", "label-parent", "loss") == [(0, 1)]


slow = """
import _thread, fcntl, os, signal, sys, threading, time, tutti.track
directory, how = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
with tutti.track.open("run-7", label="a", directory=directory, console=False) as log:
    pass
held, holds = os.pipe()
child = os.fork()
if child == 0:  # as long as it has a lease, another's open() waits
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    file = os.open(os.path.join(log.directory, "label-b.jsonl"), os.O_RDWR | os.O_CREAT)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    os.write(holds, b"!")
    os.close(held)
    os.close(holds)
    signal.pause()
os.close(holds)
assert os.read(held, 1) == b"!"
counted = 0
def count():
    global counted
    while True:
        counted += 1
        time.sleep(0.001)
threading.Thread(target=count, daemon=True).start()
if how == "interrupt":
    threading.Timer(0.5, _thread.interrupt_main).start()
try:
    tutti.track.open("run-7", label="b", directory=directory, console=False, open_timeout=1 if how == "time" else 1000)
except TimeoutError as e:
    assert how == "time" and "does not answer" in str(e), e
except KeyboardInterrupt:
    assert how == "interrupt"
else:
    sys.exit("it was opened")
finally:
    os.kill(child, signal.SIGKILL)
assert counted > 20, counted
print("refused", flush=True)
"""


@pytest.mark.parametrize("how", ["time", "interrupt"])
def test_a_disk_that_does_not_answer(tmp_path, how):
    begin = time.monotonic()
    ended = python(slow, tmp_path, how)
    assert ended.returncode == 0 and "refused" in ended.stdout, ended
    assert time.monotonic() - begin < 60


def test_an_open_log_costs_no_processor_time(tmp_path):
    with tutti.track.open("run-7", label="a", directory=tmp_path, **quiet):
        time.sleep(0.2)
        before = time.process_time()
        time.sleep(1)
        assert time.process_time() - before < 0.2


def test_cpp_ranks_and_python_write_one_run(tmp_path):
    run, drill = os.environ.get("TUTTI_RUN_PATH"), os.environ.get("TUTTI_TRACK_DRILL_PATH")
    if not run or not drill:
        pytest.skip("needs tutti-run and track_drill")
    with tutti.track.open("continued", label="python", directory=tmp_path, **quiet) as log:
        log.scalar("loss", 0.5, 0)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        ranks = subprocess.Popen(
            [run, "-n", "2", drill, str(tmp_path), "again"], env=clean, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True
        )
        said, _ = ranks.communicate(timeout=100)
        assert ranks.returncode == 0, said
        log.scalar("loss", 0.25, 1)
    together = tmp_path / "continued"
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith(".")] == ["continued"]
    assert curve(together, "label-python", "loss") == [(0, 0.5), (1, 0.25)]
    for rank in range(2):
        assert curve(together, f"rank-{rank}", "loss") == [(step, 2) for step in range(30, 80)]
    for label in ("python", "rank_0", "rank_1"):
        assert list((together / label).glob("events.out.tfevents.*")), label
    # Python continues the series of a rank that has ended.
    with tutti.track.open("continued", label="rank_0", directory=tmp_path, resume="must", **quiet) as log:
        log.scalar("loss", 3, 80)
    assert curve(together, "rank-0", "loss")[-2:] == [(79, 2), (80, 3)]

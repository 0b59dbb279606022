# SPDX-License-Identifier: Apache-2.0
"""Tracking: scalars, hyperparameters, texts, images and files of this process in a run that C++ ranks write, too.

    import tutti.track
    with tutti.track.open(id="run-7", label="rank_0", directory="runs") as log:
        log.scalar("loss", 0.25, step=3)
        log.hyperparameters({"lr": 0.1})
        log.artifact("model.pt", path)

Every process writes a label of its own; the processes send each other no messages, so no process group is
needed. TensorBoard (`tensorboard --logdir runs`) and `tutti-report` show the run, with one curve for each label.

Logs share one thread that runs a tutti loop; each log has a thread that writes its files. Neither takes the
interpreter's lock.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Literal, Mapping, NamedTuple, SupportsFloat, SupportsIndex

from . import _at_end, _load

__all__ = ["Log", "Totals", "open"]


class Totals(NamedTuple):
    """Counts of the records of a log."""

    written: int
    dropped: int  # more than the buffer holds, or an invalid shape or name
    failed: int  # could not be written: `failure` says why
    complete: bool  # every record that was not dropped or failed is written
    failure: str


def open(
    id: str,
    *,
    label: str | None = None,
    directory: str | os.PathLike[str] = "runs",
    name: str = "",
    resume: Literal["may", "must", "never"] = "may",
    layout: Literal["single_run", "run_per_rank"] = "single_run",
    console: bool = True,
    buffer_bytes: int = 32 << 20,
    system_metrics: float = 5.0,
    heartbeat: float = 2.0,
    open_timeout: float = 10.0,
    finish_timeout: float = 10.0,
) -> Log:
    """Opens the run `id` in `directory`, makes it if it does not exist, and returns this process's Log.

    id: one word of at most 100 bytes, without a slash and without a dot in front. Processes that open the same
        id in the same directory write one run, whether they are C++ or Python.
    label: the name of this process's series; the same rules. None: "rank_<RANK>" if the environment has
        RANK, else "<host>_<pid>". A label has one writer at a time.
    name: of the run's directory when it is made; empty: the id.
    resume: "may" makes the run or continues it, "must" needs a run that exists, "never" needs one that does not.
    layout: "single_run", or "run_per_rank" for a directory for each label; the same in all processes.
    console: standard output and error also go to files of the run until the log ends. Only for programs that do
        not redirect descriptors 1 and 2; of several logs of one process, the first one has them.
    buffer_bytes: memory for records that are not written yet. The oldest are dropped when it is full.
    system_metrics, heartbeat, open_timeout, finish_timeout: seconds. system_metrics=0 takes no samples of
        processor, memory and GPU. heartbeat=0 does not renew the label's status file, so a reader on another host
        cannot tell that the process is alive.

    Completes: when the label's files exist. Other Python threads run while it waits.
    Errors: ValueError (an invalid word, a run that is missing or exists against `resume`, a label that another
        log writes), OSError (the files cannot be made), TimeoutError (a disk that does not answer in
        open_timeout), ImportError (tutti was built for another PyTorch).
    Cost: a few files; some milliseconds on a local disk. The first call imports PyTorch and starts a thread.
    """
    if label is None:
        rank = os.environ.get("RANK", "")
        label = f"rank_{rank}" if rank else ""
    native = _load()
    _flush()
    opened = native.track_open(
        id,
        label,
        os.fspath(directory),
        name,
        resume,
        layout,
        console,
        buffer_bytes,
        system_metrics,
        heartbeat,
        open_timeout,
        finish_timeout,
    )
    _at_end(_shut_down)
    return Log(opened)


class Log:
    """One label's part of a run; made by open().

    The recording methods may be called by any thread. They copy what they are given into a queue of bounded
    memory and return: they neither block nor wait for the disk, and a record that cannot be kept is counted in
    Totals. They raise only for arguments of wrong types and shapes, and RuntimeError in a forked child, which
    opens a log of its own. After the end of the log they do nothing.

    As a context manager, a log is finished at the end of the block. If the block raises, the log is closed
    instead, and the run says that this label ended without a finish.
    """

    def __init__(self, native: Any) -> None:
        self._native = native

    @property
    def directory(self) -> str:
        """The directory of the run (with layout="run_per_rank", of this label)."""
        return self._native.directory

    def scalar(self, name: str, value: SupportsFloat | SupportsIndex | str, step: int) -> None:
        """Adds `value`, anything that float() takes, to the series `name` at `step`.

        Cost: well below a microsecond for a Python number. A tensor on a device is waited for, by float().
        """
        self._native.scalar(name, float(value), int(step))

    def text(self, name: str, value: str, step: int = 0) -> None:
        """Adds the string `value` to the series `name` at `step`."""
        self._native.text(name, value, int(step))

    def hyperparameters(self, values: Mapping[str, Any]) -> None:
        """Adds the dictionary `values` to this label's hyperparameters; a value that exists is replaced.

        Booleans, integers, floats and strings keep their types, NumPy's scalars and tensors of one element
        become numbers. Anything else is written as its str().
        """
        self._native.hyperparameters({str(name): _plain(value) for name, value in values.items()})

    def image(self, name: str, pixels: Any, step: int = 0) -> None:
        """Adds an image: `pixels` is a NumPy array, a tensor or another buffer of unsigned bytes.

        Its shape is (height, width), (height, width, 3) for RGB or (height, width, 4) for RGBA; (height, width, 1)
        is grey, too. The pixels are copied. Errors: ValueError (another shape or another type of elements).
        """
        if hasattr(pixels, "detach"):
            pixels = pixels.detach().cpu().numpy()
        view = memoryview(pixels)
        channels = view.shape[2] if view.ndim == 3 else 1
        if view.format != "B" or view.ndim not in (2, 3) or channels not in (1, 3, 4) or 0 in view.shape:
            raise ValueError(
                "an image has unsigned bytes in the shape (height, width) or (height, width, channels) with 1, 3 or "
                f"4 channels, not elements of format '{view.format}' in the shape {tuple(view.shape)}"
            )
        self._native.image(name, view.tobytes(), view.shape[1], view.shape[0], channels, int(step))

    def artifact(self, name: str, content: str | os.PathLike[str] | bytes | bytearray | memoryview) -> None:
        """Puts a file with this `name`, which may have folders, among the run's artifacts.

        content: the path of a file (a string or os.PathLike), or bytes. A file is copied some time before
        finish() returns: leave it unchanged until then. If it cannot be read, Totals.failure says so. A second
        file of the same name gets "-2", ... A name that is absolute or has ".." is counted as dropped.
        """
        if isinstance(content, (bytes, bytearray, memoryview)):
            self._native.artifact_bytes(name, bytes(content))
        else:
            self._native.artifact_file(name, os.fspath(content))

    def so_far(self) -> Totals:
        """Totals of the records until now. Does not wait."""
        return Totals(*self._native.so_far())

    def finish(self) -> Totals:
        """Writes what is queued, marks this label as finished, and returns Totals. A second call does nothing.

        Completes: when everything is written, or after finish_timeout with `complete` false, whatever the other
        processes do. Other Python threads run while it waits; Ctrl-C ends the wait.
        Errors: none for what the disk does, which Totals counts.
        """
        _flush()
        return Totals(*self._native.finish())

    def close(self) -> None:
        """Ends the log without a finish, as the end of the program does, and as the run says afterwards.

        Completes: when what is queued is written, or after two seconds.
        """
        _flush()
        self._native.close()

    def __del__(self) -> None:
        _flush()  # closed by its destructor

    def __enter__(self) -> Log:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()


def _flush() -> None:
    """Writes what Python has buffered: a log has the console from its open to its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # there is none, it is closed, or its reader has gone
            pass


def _plain(value: Any) -> bool | int | float | str:
    if not isinstance(value, (bool, int, float, str)) and hasattr(value, "item"):
        try:
            value = value.item()
        except (RuntimeError, TypeError, ValueError):  # of more than one element
            return str(value)
    if isinstance(value, (bool, float, str)):
        return value
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return int(value)
    return str(value)


def _shut_down() -> None:
    """Logs that are open are closed however Python ends."""
    _flush()
    _load().track_shut_down(10.0)

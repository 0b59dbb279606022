#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a tutti run into Weights & Biases or ClearML, by their own SDK.

    export_run.py wandb RUN [--online]     then: wandb sync DIR/wandb/offline-run-*
    export_run.py clearml RUN [--online]   then: Task.import_offline_session("DIR/<task>.zip")

RUN is a run directory, such as runs/2026-01-31_23-59-59. It is only read. Without --online nothing
leaves this machine, and no account is needed.

W&B gets one run for each label, all in one group with the name of the tutti run. W&B's guide to
distributed training advises this if every process has its own data: the page of the group
draws one line for each run, and each run keeps its own console, configuration and artifacts.
One run with prefixed keys would draw a separate plot for each rank. The job type is "main" for
rank 0, "worker" for the other ranks, and the label for a process outside of the job.

ClearML gets one task. A scalar is one plot (title) with one line (series) for each label.
"""
import argparse
import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import sys
from pathlib import Path

RANK = re.compile(r"rank-(\d{1,9})")
LINES_AT_ONCE = 1000


class ExportError(Exception):
    """An error, with its cure."""


def has(directory, file):
    """Whether the run has this file. Its lines and links may name files outside of it, which are not exported."""
    place = os.path.realpath(directory)
    return file.is_file() and os.path.commonpath([place, os.path.realpath(file)]) == place


def json_of(path):
    """Reads the object in a file. Returns an empty one if the file is missing, not the run's own, or damaged."""
    if not has(path.parent, path):
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


class Label:
    """The part of a run that one rank, or one process outside of the job, has written."""

    def __init__(self, directory, stem):
        self.directory, self.stem = directory, stem
        self.status = json_of(directory / f"{stem}.json")
        rank = RANK.fullmatch(stem)
        self.rank = int(rank[1]) if rank else None
        self.name = f"rank_{self.rank}" if rank else str(self.status.get("label", stem[len("label-"):]))
        self.scalars, self.histograms, self.images = {}, {}, {}  # by name and step; the last one counts
        self.texts, self.hyperparameters, self.artifacts = [], {}, []
        self.unreadable = 0
        lines = directory / f"{stem}.jsonl"
        if not has(directory, lines):
            return
        with open(lines, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    self.add(json.loads(line))
                except (ValueError, TypeError, KeyError, AttributeError):
                    self.unreadable += 1  # truncated by a crash

    def add(self, line):
        kind, name, step = line["kind"], line.get("name", ""), int(line.get("step", 0))
        if kind == "scalar":  # "NaN", "Infinity" and "-Infinity" are strings
            self.scalars.setdefault(name, {})[step] = (float(line["value"]), float(line.get("time", 0)))
        elif kind == "histogram":
            edges = [float(edge) for edge in [line["min"], *line["limits"]]]
            self.histograms.setdefault(name, {})[step] = (edges, [float(n) for n in line["counts"]])
        elif kind == "image":
            self.images.setdefault(name, {})[step] = self.directory / line["file"]
        elif kind == "text":
            self.texts.append((name, step, str(line["value"])))
        elif kind == "hyperparameters":
            self.hyperparameters.update(line["values"])
        elif kind == "artifact":
            if not Path(name).name or Path(name).is_absolute() or ".." in Path(name).parts:
                raise ValueError(name)
            self.artifacts.append((name, self.directory / line["file"]))

    def artifact_files(self):
        """Name and file of each existing artifact. The second of a name is called name-2."""
        for name, file in self.artifacts:
            if has(self.directory, file):
                yield Path(name).with_name(file.name).as_posix(), file

    def console(self, stream):
        """The lines of "out" or "err", some at a time."""
        path = self.directory / "console" / f"{self.stem}.{stream}"
        if not has(self.directory, path):
            return
        with open(path, encoding="utf-8", errors="replace") as file:
            some = []
            for line in file:
                some.append(line if line.endswith("\n") else line + "\n")
                if len(some) == LINES_AT_ONCE:
                    yield some
                    some = []
            if some:
                yield some


class Run:
    """A run directory, in either layout."""

    def __init__(self, directory):
        self.directory = directory
        self.labels = []
        facts = directory / "run.json"
        for entry in sorted(directory.iterdir()) if directory.is_dir() else []:
            is_folder = entry.is_dir()
            stem = entry.name if is_folder else entry.stem
            if not RANK.fullmatch(stem) and not stem.startswith("label-"):
                continue
            if is_folder and (entry / "run.json").exists():  # a run for each rank
                self.labels.append(Label(entry, stem))
                facts = entry / "run.json"
            elif not is_folder and entry.suffix == ".json":
                self.labels.append(Label(directory, stem))
        if not self.labels:
            raise ExportError(
                f"{directory} is no run: it has neither a rank-0.json nor a rank-0/run.json. "
                "A run is a directory such as runs/2026-01-31_23-59-59; ls runs shows which are there.")
        self.labels.sort(key=lambda label: (label.rank is None, label.rank or 0, label.name))
        self.facts = json_of(facts)
        self.name = str(self.facts.get("name", directory.resolve().name))

    def about(self):
        """The facts of a run, without its environment."""
        return {key: value for key, value in self.facts.items() if key not in ("environment", "format")}


def sdk(module, package):
    """Imports an SDK, or tells how to install it."""
    try:
        return __import__(module)
    except ImportError as missing:
        raise ExportError(f"{sys.executable} has no {module} ({missing}): pip install {package}") from missing


def wandb_title(name):
    """Converts a name to one of an artifact; a name that this changes also gets a hash, so no two become one."""
    title = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:112]
    return title if title == name else f"{title}.{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def wandb_rows(wandb, label):
    """All values, by step. Samples count seconds, so they get an axis of their own."""
    rows = {}
    for name, points in label.scalars.items():
        axis = "seconds" if name.startswith("system/") else "global_step"
        for step, (value, time) in points.items():
            row = rows.setdefault((step, axis), {axis: step, "_timestamp": time})
            row[name] = value
            row["_timestamp"] = max(row["_timestamp"], time)
    for name, steps in label.histograms.items():
        for step, (edges, counts) in steps.items():
            histogram = wandb.Histogram(np_histogram=(counts, edges))
            rows.setdefault((step, "global_step"), {"global_step": step})[name] = histogram
    for name, steps in label.images.items():
        for step, file in steps.items():
            if has(label.directory, file):
                rows.setdefault((step, "global_step"), {"global_step": step})[name] = wandb.Image(str(file))
    return [rows[key] for key in sorted(rows)]


def wandb_label(wandb, run, label, options):
    """Makes one run of W&B. Returns its directory."""
    job_type = label.name if label.rank is None else "worker" if label.rank else "main"
    known = "\n".join(str(x) for x in (run.facts.get("id"), run.name, run.facts.get("created"), label.name))
    about = {**run.about(), "label": label.name, "rank": label.rank, "host": label.status.get("host"),
             "state": label.status.get("state")}
    settings = wandb.Settings(console="wrap_raw", silent=True, disable_git=True, save_code=False,
                              x_disable_stats=True, x_disable_meta=True)
    made = wandb.init(
        project=options.project, group=run.name, job_type=job_type, name=label.name, dir=options.dir,
        # The id depends on the run alone, so that an online export replaces an earlier one.
        id=hashlib.sha256(known.encode()).hexdigest()[:16], tags=[label.name[:64]],
        config={**label.hyperparameters, "tutti": about},
        mode="online" if options.online else "offline", settings=settings)
    place = Path(made.dir).parent
    made.define_metric("*", step_metric="global_step")
    made.define_metric("system/*", step_metric="seconds")
    for row in wandb_rows(wandb, label):
        made.log(row)
    for name in dict.fromkeys(name for name, _, _ in label.texts):
        rows = [[step, text] for of, step, text in label.texts if of == name]
        made.log({name: wandb.Table(columns=["step", "text"], data=rows)})
    files = list(label.artifact_files())
    if files:
        artifact = wandb.Artifact(wandb_title(f"{run.name}-{label.name}"), type="run_files")
        for name, file in files:
            artifact.add_file(str(file), name=name)
        made.log_artifact(artifact)
    for stream in ("out", "err"):
        for lines in label.console(stream):
            (sys.stdout if stream == "out" else sys.stderr).write("".join(lines))
    made.finish()
    return place


def export_wandb(run, options):
    places = []
    # W&B captures the streams present at its import: the rank's lines, not those of this program.
    with open(os.devnull, "w") as out, open(os.devnull, "w") as err, \
            contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        wandb = sdk("wandb", "wandb")
        if any(label.images for label in run.labels):
            sdk("PIL", "pillow   # W&B reads images by it")
        for label in run.labels:
            try:
                places.append(wandb_label(wandb, run, label, options))
            except wandb.Error as problem:
                raise ExportError(f"W&B did not take {label.name}: {problem}") from problem
    for label, place in zip(run.labels, places):
        print(f"{label.name}: {place}" + ("" if options.online else f"   (to send it: wandb sync {place})"))


def clearml_label(logger, task, label):
    """Reports the part of one label. Returns the number of values that ClearML cannot keep."""
    lost = 0
    for name, points in label.scalars.items():
        for step, (value, _) in sorted(points.items()):
            if math.isfinite(value):
                logger.report_scalar(title=name, series=label.name, value=value, iteration=step)
            else:
                lost += 1
    for name, steps in label.histograms.items():
        for step, (edges, counts) in sorted(steps.items()):
            logger.report_histogram(title=name, series=label.name, values=counts, iteration=step,
                                    xlabels=[f"{edge:.4g}" for edge in edges[1:]])
    for name, steps in label.images.items():
        for step, file in sorted(steps.items()):
            if has(label.directory, file):
                logger.report_image(title=name, series=label.name, iteration=step, local_path=str(file))
    for name, step, text in label.texts:
        logger.report_text(f"[{label.name}] {name}, step {step}: {text}", print_console=False)
    for stream in ("out", "err"):
        for lines in label.console(stream):
            logger.report_text("".join(f"[{label.name}] {line}" for line in lines), print_console=False)
    for name, file in label.artifact_files():
        task.upload_artifact(f"{label.name}/{name}", artifact_object=file, wait_on_upload=True)
    return lost


def export_clearml(run, options):
    sdk("clearml", "clearml")
    from clearml import Task
    # This program's repository is not the run's. ClearML's search for it may also wait for minutes, because a
    # forked reporter keeps the pipe of git open.
    Task._update_repository = lambda task: None
    Task.set_offline(not options.online)
    task = Task.init(project_name=options.project, task_name=run.name, reuse_last_task_id=False,
                     tags=[label.name for label in run.labels], auto_connect_arg_parser=False,
                     auto_connect_frameworks=False, auto_connect_streams=False, auto_resource_monitoring=False)
    first = run.labels[0]
    parameters = {f"General/{key}": value for key, value in first.hyperparameters.items()}
    for label in run.labels[1:]:  # a section of its own only where labels differ
        parameters.update({f"{label.name}/{key}": value for key, value in label.hyperparameters.items()
                           if first.hyperparameters.get(key) != value})
    task.set_parameters(parameters)
    task.connect_configuration(run.about(), name="tutti")
    lost = sum(clearml_label(task.get_logger(), task, label) for label in run.labels)
    if lost:
        print(f"{lost} values are not finite: ClearML cannot keep them, and has the others", file=sys.stderr)
    folder = None if options.online else Path(task.get_offline_mode_folder())
    page = task.get_output_log_web_page() if options.online else None
    task.close()
    if options.online:
        print(page)
        return
    session = Path(shutil.copy(f"{folder}.zip", options.dir)).resolve()
    print(f'{session}   (to send it: python3 -c "from clearml import Task; '
          f'Task.import_offline_session(\'{session}\')")')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tracker", choices=["wandb", "clearml"])
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    parser.add_argument("--online", action="store_true", help="send it to the server at once")
    parser.add_argument("--project", default="tutti", help="the project there (default: tutti)")
    parser.add_argument("--dir", default=".", help="where offline runs are written (default: here)")
    options = parser.parse_args()
    try:
        run = Run(options.run)
        os.makedirs(options.dir, exist_ok=True)
        (export_wandb if options.tracker == "wandb" else export_clearml)(run, options)
    except (ExportError, OSError) as problem:
        sys.exit(f"export_run.py: {problem}")
    unreadable = sum(label.unreadable for label in run.labels)
    if unreadable:
        print(f"{unreadable} lines of the run could not be read, and are not exported", file=sys.stderr)


if __name__ == "__main__":
    main()

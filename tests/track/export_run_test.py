# SPDX-License-Identifier: Apache-2.0
"""python/export_run.py writes runs with both SDKs offline; what they have kept is read back: a run of three ranks, and
one of four ranks that are all killed, go on as two, and are joined by a process outside of the job.

export_run_test.py EXPORT_RUN TUTTI_RUN TRACK_RUN TRACK_DRILL. TUTTI_EXPORT_PYTHON names a python3 that has both SDKs.
"""
import collections
import json
import os
import runpy
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

NEEDS = "wandb, clearml, PIL"
# The file of a W&B run: a header of 7 bytes, then blocks of 32 KiB with records in the form of LevelDB's
# log. The records are the SDK's own messages.
READ_WANDB = """
import json, sys
from wandb.proto import wandb_internal_pb2 as messages
data, at, whole = open(sys.argv[1], "rb").read(), 7, b""
assert data[:4] == b":W&B", data[:7]
scalars, config, artifacts, console, of = {}, {}, [], "", {}
images = []
while at + 7 <= len(data):
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    size, kind = int.from_bytes(data[at + 4:at + 6], "little"), data[at + 6]
    whole += data[at + 7:at + 7 + size]
    at += 7 + size
    if kind not in (1, 4):  # the record goes on
        continue
    record = messages.Record()
    record.ParseFromString(whole)
    whole = b""
    if record.HasField("run"):
        r = record.run
        of = {"group": r.run_group, "job_type": r.job_type, "name": r.display_name}
        config.update({u.key: json.loads(u.value_json) for u in r.config.update})
    elif record.HasField("history"):
        row = {tuple(i.nested_key) or (i.key,): json.loads(i.value_json) for i in record.history.item}
        axis = "seconds" if ("seconds",) in row else "global_step"
        for key, value in row.items():
            if len(key) == 1 and key[0] not in (axis, "global_step") and key[0][0] != "_":
                scalars.setdefault(key[0], {})[str(row[(axis,)])] = value
            elif key[1:] == ("_type",) and value == "image-file":
                images.append(key[0])
    elif record.HasField("artifact"):
        artifacts += [entry.path for entry in record.artifact.manifest.contents]
    elif record.HasField("output_raw"):
        console += record.output_raw.line
print(json.dumps([of, scalars, config, artifacts, console, images]))
"""


def call(words, **more):
    done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=150, **more)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def said_by(run, label):
    """The scalars of a label by name and step, and its hyperparameters, straight from its lines."""
    scalars, parameters = collections.defaultdict(dict), {}
    stem = label.replace("_", "-") if label.startswith("rank_") else f"label-{label}"
    for line in (run / f"{stem}.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "scalar":
            scalars[record["name"]][str(record["step"])] = record["value"]
        elif record["kind"] == "hyperparameters":
            parameters.update(record["values"])
    return dict(scalars), parameters


def same(kept, said, digits, what):
    assert kept.keys() == said.keys(), (what, kept.keys() ^ said.keys())
    for name, points in said.items():
        assert kept[name].keys() == points.keys(), (what, name, kept[name].keys() ^ points.keys())
        for step, value in points.items():
            assert abs(kept[name][step] - value) <= digits * max(1, abs(value)), (what, name, step, value)


def job_type_of(label):
    return "main" if label == "rank_0" else "worker" if label.startswith("rank_") else label


def check_wandb(python, export, run, place, environment, console_of, picture):
    """`console_of`: some of the console of each label; `picture`: the name of an image of each, or none."""
    call([python, export, "wandb", run, "--dir", place], env=environment)
    files = list(place.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == len(console_of), files
    seen = set()
    for file in files:
        of, scalars, config, artifacts, console, images = json.loads(
            call([python, "-c", READ_WANDB, file], env=environment))
        label = of["name"]
        seen.add(label)
        said, parameters = said_by(run, label)
        assert of == {"group": run.name, "job_type": job_type_of(label), "name": label}
        same(scalars, said, 0, f"W&B, {label}")
        assert parameters and {key: config[key] for key in parameters} == parameters, config
        rank = int(label[5:]) if label.startswith("rank_") else None
        assert config["tutti"]["rank"] == rank and "environment" not in config["tutti"]
        assert "weights.bin" in artifacts, artifacts
        assert all(text in console for text in console_of[label]), console
        assert picture is None or picture in images, images
    assert seen == console_of.keys()


def check_clearml(python, export, run, place, environment, console_of, picture):
    call([python, export, "clearml", run, "--dir", place], env=environment)
    session, = place.glob("*.zip")
    with zipfile.ZipFile(session) as archive:
        task = json.loads(archive.read("task.json"))
        events = [e for line in archive.read("metrics.jsonl").splitlines() for e in json.loads(line)]
        console = "".join(e["msg"] for line in archive.read("log.jsonl").splitlines() for e in json.loads(line))
        names = archive.namelist()
    kept = {}
    for e in events:
        if e["type"] == "training_stats_scalar":
            kept.setdefault(e["variant"], {}).setdefault(e["metric"], {})[str(e["iter"])] = e["value"]
    labels = set(console_of)
    assert kept.keys() == labels and set(task["tags"]) == labels, (kept.keys(), task["tags"])
    for label in labels:
        said, parameters = said_by(run, label)
        same(kept[label], said, 1e-6, f"ClearML, {label}")
        sections = task["hyperparams"]
        own = {**sections["General"], **sections.get(label, {})}
        assert {key: own[key]["value"] for key in parameters} == {k: str(v) for k, v in parameters.items()}, own
        assert any(a["key"] == f"{label}/weights.bin" for a in task["execution"]["artifacts"])
        assert any(label in name and name.endswith("/weights.bin") for name in names), names
        assert all(f"[{label}] {text}" in console for text in console_of[label]), console
        assert picture is None or any(label in name and name.endswith(".png") for name in names), names
    assert run.name in task["configuration"]["tutti"]["value"]


def check_errors(export, scratch):
    done = subprocess.run([sys.executable, export, "wandb", scratch], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "is no run" in done.stderr and "runs/2026" in done.stderr, done.stderr
    (scratch / "rank-0.json").write_text("{}")
    for module in ("wandb", "clearml"):  # -S: without what is installed
        done = subprocess.run([sys.executable, "-S", export, module, scratch], stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and f"pip install {module}" in done.stderr, done.stderr


def check_titles(export):
    title = runpy.run_path(str(export))["wandb_title"]
    assert title("run-rank_0") == "run-rank_0"
    assert title("lr=1-rank_0") != title("lr+1-rank_0")
    assert title("x" * 200 + "1") != title("x" * 200 + "2") and len(title("x" * 200)) <= 128


def check_outside(export, scratch):
    """A run that names files outside of it keeps only its own."""
    run = scratch / "run"
    (run / "console").mkdir(parents=True)
    for file in (scratch / "secret", run / "own"):
        file.write_text('{"kind": "text", "value": "a word"}\n')
    for link in ("linked", "rank-1.jsonl", "run.json", "console/rank-0.out"):
        (run / link).symlink_to(scratch / "secret")
    for rank in range(2):
        (run / f"rank-{rank}.json").write_text("{}")
    named = {"file": "own", "absolute": str(scratch / "secret"), "above": "../secret", "link": "linked", "../x": "own"}
    (run / "rank-0.jsonl").write_text("".join(
        json.dumps({"kind": kind, "name": name, "file": file}) + "\n"
        for kind in ("artifact", "image") for name, file in named.items()))
    of_module = runpy.run_path(str(export))
    read = of_module["Run"](run)
    first, second = read.labels
    assert [file for _, file in first.artifact_files()] == [run / "own"], list(first.artifact_files())
    images = {name for name, steps in first.images.items() if of_module["has"](run, steps[0])}
    assert images == {"file", "../x"}, images
    assert not list(first.console("out")) and not second.texts and not read.facts


def start_three_times(tutti_run, drill, directory):
    """Four ranks that are all killed at step 50, two that go on at step 30, and a process outside."""
    job = subprocess.Popen([tutti_run, "-n", "4", drill, directory, "first", "1"], stdout=subprocess.PIPE, text=True)
    written = 0
    while written < 4:
        line = job.stdout.readline()
        assert line, "the first start has ended"
        written += "all is written" in line
    job.kill()
    job.communicate(timeout=60)
    call([tutti_run, "-n", 2, drill, directory, "again", 1])
    call([drill, directory, "outside", 1])


def main():
    export, tutti_run, track_run, track_drill = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for folder in ("none", "outside", "home", "wandb", "clearml"):
            (scratch / folder).mkdir()
        check_errors(export, scratch / "none")
        check_titles(export)
        check_outside(export, scratch / "outside")
        python = os.environ.get("TUTTI_EXPORT_PYTHON", "python3")
        # Nothing of the caller's account, caches or settings.
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB_", "CLEARML_", "TRAINS_"))}
        home = str(scratch / "home")
        environment.update(HOME=home, TMPDIR=home, WANDB_CACHE_DIR=home, WANDB_DATA_DIR=home, WANDB_CONFIG_DIR=home)
        if subprocess.run([python, "-c", f"import {NEEDS}"], env=environment, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode != 0:
            print("SKIPPED: no wandb and clearml: pip install wandb clearml, or TUTTI_EXPORT_PYTHON=a python3 "
                  "that has both\ncases: 3 passed, 0 failed, 4 skipped")
            return 77
        call([tutti_run, "-n", 3, track_run, scratch / "runs"])
        run, = (entry for entry in (scratch / "runs").iterdir() if entry.name[0] != ".")
        console_of = {f"rank_{rank}": [f"rank {rank} of 3 tracks in"] for rank in range(3)}
        check_wandb(python, export, run, scratch / "wandb", environment, console_of, "weights")
        check_clearml(python, export, run, scratch / "clearml", environment, console_of, "weights")

        start_three_times(tutti_run, track_drill, scratch / "continued_runs")
        run = scratch / "continued_runs" / "continued"
        console_of = {f"rank_{rank}": [f"rank {rank} of 4: steps 0 to 49\n"] for rank in range(4)}
        for rank in range(2):
            console_of[f"rank_{rank}"].append(f"rank {rank} of 2: steps 30 to 79\n")
        console_of["evaluation"] = ["rank 0 of 1: steps 30 to 79\n"]
        for label, steps in (("rank_0", 80), ("rank_1", 80), ("rank_2", 50), ("rank_3", 50), ("evaluation", 50)):
            assert len(said_by(run, label)[0]["loss"]) == steps, label
        check_wandb(python, export, run, scratch / "wandb_again", environment, console_of, None)
        check_clearml(python, export, run, scratch / "clearml_again", environment, console_of, None)
    print("cases: 7 passed, 0 failed, 0 skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the Kubernetes manifests of deploy/ without a cluster.

  check_manifests.py FILE...            every rule; prints what breaks one, and ends with 1 if anything does
  check_manifests.py --pods FILE        the pods that the cluster would start, a line for each thing that they get
  check_manifests.py --variables FILE   the variables that the file sets or that its starter sets for tutti-run

Ends with 77 where python3-yaml is missing. The rules are strict: they know only the fields in use.
"""

import re
import sys

try:
    import yaml
except ImportError:
    print("no Python module yaml (Debian: python3-yaml)")
    sys.exit(77)

TRAINER_PORT = 29400   # of Kubeflow Trainer
USUAL_GRACE = 5   # of tutti-run
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"

# What each starter sets in its pods, by the field of tutti-run's command line that it stands for.
STARTERS = {
    "Job": {"node_rank": "JOB_COMPLETION_INDEX"},
    "JobSet": {"node_rank": "JOB_COMPLETION_INDEX"},
    "LeaderWorkerSet": {
        "nodes": "LWS_GROUP_SIZE", "node_rank": "LWS_WORKER_INDEX", "master": "LWS_LEADER_ADDRESS"},
    "TrainJob": {
        "ranks": "PET_NPROC_PER_NODE", "nodes": "PET_NNODES", "node_rank": "PET_NODE_RANK",
        "master": "PET_MASTER_ADDR", "master_port": "PET_MASTER_PORT", "index": "JOB_COMPLETION_INDEX"},
}


# ---- rules: each is a function of a value that yields what is wrong with it, as (path, text) ----

def text(pattern=r".+", what="text"):
    def rule(value):
        if not isinstance(value, str):
            yield "", f"{value!r} is not a string"
        elif not re.fullmatch(pattern, value):
            yield "", f"{value!r} is no {what}"
    return rule


def integer(low):
    def rule(value):
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            yield "", f"{value!r} is not an integer from {low} on"
    return rule


def one_of(*allowed):
    def rule(value):
        if not any(value == a and type(value) is type(a) for a in allowed):
            yield "", f"{value!r} is not {' or '.join(map(repr, allowed))}"
    return rule


def list_of(item):
    def rule(value):
        if not isinstance(value, list) or not value:
            yield "", "is not a list with something in it"
            return
        for number, entry in enumerate(value):
            for path, wrong in item(entry):
                yield f"[{number}]{path}", wrong
    return rule


def map_of(key, item):
    def rule(value):
        if not isinstance(value, dict) or not value:
            yield "", "is not a map with something in it"
            return
        for name, entry in value.items():
            yield from key(name)
            for path, wrong in item(entry):
                yield f".{name}{path}", wrong
    return rule


def fields(required, optional=None):
    """A map with these keys and no others."""
    known = {**required, **(optional or {})}

    def rule(value):
        if not isinstance(value, dict):
            yield "", "is not a map"
            return
        for name in required:
            if name not in value:
                yield f".{name}", "is missing"
        for name, entry in value.items():
            if name not in known:
                yield f".{name}", "is no field that these files use"
                continue
            for path, wrong in known[name](entry):
                yield f".{name}{path}", wrong
    return rule


boolean = one_of(True, False)
dns_label = text(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", "name (RFC 1035 label)")
label_key = text(r"([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", "key of a label")
label_value = text(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", "value of a label")
quantity = text(r"[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?", "quantity")
word = text()
image = text(r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+:[A-Za-z0-9_.-]+", "image with a registry and a tag")
absolute_path = text(r"/[^:]+", "absolute path")
port = integer(1)
labels = map_of(label_key, label_value)
amounts = map_of(one_of("cpu", "memory"), quantity)
metadata = fields({"name": dns_label}, {"labels": labels})

secret_reference = fields({"secretKeyRef": fields({"name": dns_label, "key": text(r"[-._a-zA-Z0-9]+", "key")})})
variable_name = text(r"[A-Z][A-Z0-9_]*", "name of a variable")


def variable(value):
    secret = isinstance(value, dict) and "SECRET" in str(value.get("name"))
    if secret:
        yield from fields({"name": variable_name, "valueFrom": secret_reference})(value)
    else:
        yield from fields({"name": variable_name, "value": word})(value)


def container(command):
    required = {
        "name": dns_label,
        "image": image,
        "env": list_of(variable),
        "resources": fields({"requests": amounts, "limits": amounts}),
        "securityContext": fields({
            "allowPrivilegeEscalation": one_of(False),
            "capabilities": fields({"drop": list_of(one_of("ALL"))}),
        }),
        "volumeMounts": list_of(fields({"name": dns_label, "mountPath": absolute_path})),
    }
    optional = {"ports": list_of(fields({"name": dns_label, "containerPort": port}))}
    if command:
        required.update(command=list_of(word), args=list_of(word))
    return fields(required, optional)


def pod_template(restart, command=True, subdomain=False):
    required = {
        "terminationGracePeriodSeconds": integer(1),
        "enableServiceLinks": one_of(False),
        "securityContext": fields({
            "runAsNonRoot": one_of(True),
            "runAsUser": integer(1),
            "seccompProfile": fields({"type": one_of("RuntimeDefault")}),
        }),
        "containers": list_of(container(command)),
        "volumes": list_of(fields({
            "name": dns_label,
            "emptyDir": fields({"medium": one_of("Memory"), "sizeLimit": quantity}),
        })),
    }
    if restart:   # Never or OnFailure in a Job; else the default, Always
        required["restartPolicy"] = one_of(restart)
    if subdomain:
        required["subdomain"] = dns_label
    return fields({"spec": fields(required)}, {"metadata": fields({"labels": labels})})


def job_spec(template, required=None, optional=None):
    return fields({"backoffLimit": integer(0), "template": template, **(required or {})}, optional)


indexed = {"completionMode": one_of("Indexed"), "completions": integer(1), "parallelism": integer(1)}
failure_rules = fields({"rules": list_of(fields({
    "action": one_of("Ignore", "FailJob", "Count", "FailIndex"),
    "onPodConditions": list_of(fields({"type": one_of("DisruptionTarget"), "status": one_of("True")})),
}))})
restarts = fields({"maxRestarts": integer(0)})


def document(api_version, kind, spec):
    return fields({"apiVersion": one_of(api_version), "kind": one_of(kind), "metadata": metadata, "spec": spec})


KINDS = {
    "Service": document("v1", "Service", fields({
        "clusterIP": one_of("None"),
        "publishNotReadyAddresses": one_of(True),
        "selector": labels,
        "ports": list_of(fields({"name": dns_label, "port": port})),
    })),
    "Job": document("batch/v1", "Job", job_spec(
        pod_template("Never", subdomain=True), indexed, {"podFailurePolicy": failure_rules})),
    "JobSet": document("jobset.x-k8s.io/v1alpha2", "JobSet", fields({
        "network": fields({"enableDNSHostnames": one_of(True), "subdomain": dns_label}),
        "failurePolicy": restarts,
        "replicatedJobs": list_of(fields({
            "name": dns_label,
            "replicas": one_of(1),
            "template": fields({"spec": job_spec(pod_template("Never"), indexed)}),
        })),
    })),
    "LeaderWorkerSet": document("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", fields({
        "replicas": integer(1),
        "leaderWorkerTemplate": fields({
            "size": integer(1),
            "restartPolicy": one_of("RecreateGroupOnPodRestart"),
            "workerTemplate": pod_template(None),
        }),
    })),
    "ClusterTrainingRuntime": document("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", fields({
        "mlPolicy": fields({
            "numNodes": integer(1),
            "torch": fields({"numProcPerNode": integer(1)}),   # not "auto": tutti-run wants a number
        }),
        "template": fields({"spec": fields({
            "failurePolicy": restarts,
            "replicatedJobs": list_of(fields({
                "name": one_of("node"),
                "template": fields({
                    "metadata": fields({"labels": map_of(one_of(STEP_LABEL), one_of("trainer"))}),
                    "spec": job_spec(pod_template("Never", command=False)),
                }),
            })),
        })}),
    })),
    "TrainJob": document("trainer.kubeflow.org/v1alpha1", "TrainJob", fields({
        "runtimeRef": fields({
            "apiGroup": one_of("trainer.kubeflow.org"),
            "kind": one_of("ClusterTrainingRuntime"),
            "name": dns_label,
        }),
        # Without a trainer, Trainer sets no PET_ variables.
        "trainer": fields({
            "numNodes": integer(1),
            "numProcPerNode": integer(1),
            "command": list_of(word),
            "args": list_of(word),
        }),
    })),
}
JOBS = ("Job", "JobSet", "LeaderWorkerSet", "TrainJob")


# ---- reading ----

class StrictLoader(yaml.SafeLoader):
    """Refuses a key that stands twice in one map."""

    def construct_mapping(self, node, deep=False):
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {sorted(twice)[0]!r} stands twice in a map", node.start_mark)
        return super().construct_mapping(node, deep)


def read(path):
    with open(path, encoding="utf-8") as file:
        content = file.read()
    return content, list(yaml.load_all(content, StrictLoader))


# ---- a job, whatever its kind ----

class Job:
    """The pods of one document: their template, their number, and where node 0 is."""

    def __init__(self, kind, documents):
        by_kind = {d["kind"]: d for d in documents}
        spec = by_kind[kind]["spec"]
        self.kind, self.name = kind, by_kind[kind]["metadata"]["name"]
        self.ranks = None
        if kind == "Job":
            template, self.nodes = spec["template"], spec["completions"]
            self.first_host = f"{self.name}-0.{template['spec']['subdomain']}"
        elif kind == "JobSet":
            replicated = spec["replicatedJobs"][0]
            inner = replicated["template"]["spec"]
            template, self.nodes = inner["template"], inner["completions"]
            self.first_host = f"{self.name}-{replicated['name']}-0-0.{spec['network']['subdomain']}"
        elif kind == "LeaderWorkerSet":
            inner = spec["leaderWorkerTemplate"]
            template, self.nodes = inner["workerTemplate"], inner["size"]
            self.first_host = f"{self.name}-0.{self.name}.default"
        else:
            runtime = by_kind["ClusterTrainingRuntime"]["spec"]["template"]["spec"]["replicatedJobs"][0]
            template, self.nodes = runtime["template"]["spec"]["template"], spec["trainer"]["numNodes"]
            self.ranks = spec["trainer"]["numProcPerNode"]
            self.first_host = f"{self.name}-node-0-0.{self.name}"
        self.pod = template["spec"]
        self.labels = template.get("metadata", {}).get("labels", {})
        self.container = self.pod["containers"][0]
        started = spec["trainer"] if kind == "TrainJob" else self.container
        self.command, self.program = started["command"], started["args"]

    def option(self, *names):
        for name in names:
            if name in self.command[:-1]:
                return self.command[self.command.index(name) + 1]
        return None

    def variables_of(self, index):
        values = {"ranks": self.ranks, "nodes": self.nodes, "node_rank": index, "index": index,
                  "master": self.first_host, "master_port": TRAINER_PORT}
        return {name: str(values[field]) for field, name in STARTERS[self.kind].items()}


def inconsistencies(documents):
    """What the parts of one file say of each other, where each for itself is right."""
    kinds = [d["kind"] for d in documents]
    jobs = [kind for kind in kinds if kind in JOBS]
    if len(jobs) != 1:
        yield f"{len(jobs)} jobs in one file, instead of one"
        return
    if jobs[0] == "TrainJob":
        if "ClusterTrainingRuntime" not in kinds:
            yield "the ClusterTrainingRuntime of the TrainJob is missing"
            return
        by_kind = {d["kind"]: d for d in documents}
        wanted, there = by_kind["TrainJob"]["spec"]["runtimeRef"]["name"], by_kind["ClusterTrainingRuntime"]["metadata"]["name"]
        if wanted != there:
            yield f"runtimeRef names {wanted!r}, and the ClusterTrainingRuntime is {there!r}"
    job = Job(jobs[0], documents)
    starter = STARTERS[job.kind]

    if job.command[0] != "tutti-run":
        yield f"the command is {job.command[0]!r}, not tutti-run"
    for field, options in (("ranks", ("-n",)), ("nodes", ("--nnodes",)), ("master", ("--master",))):
        given = job.option(*options) is not None
        if field not in starter and not given:
            yield f"{job.kind} says nothing of {options[0]}: give the option"
        if field in starter and given:
            yield f"{job.kind} sets {starter[field]}: leave {options[0]} to it"
    if job.option("--nnodes") not in (None, str(job.nodes)):
        yield f"--nnodes {job.option('--nnodes')}, and there are {job.nodes} pods"
    master = job.option("--master")
    if master is not None and master.rpartition(":")[0] != job.first_host:
        yield f"--master {master}, and the pod of node 0 is {job.first_host}"

    if job.kind in ("Job", "JobSet"):
        spec = next(d for d in documents if d["kind"] == job.kind)["spec"]
        inner = spec if job.kind == "Job" else spec["replicatedJobs"][0]["template"]["spec"]
        if inner["parallelism"] != inner["completions"]:
            yield f"{inner['parallelism']} of {inner['completions']} pods run at once: all have to"
    services = [d for d in documents if d["kind"] == "Service"]
    if job.kind == "Job":
        subdomain = job.pod["subdomain"]
        named = [s for s in services if s["metadata"]["name"] == subdomain]
        if not named:
            yield f"no Service is named {subdomain!r}, as the subdomain of the pods is"
        else:
            labels_of_pods = {**job.labels, JOB_NAME_LABEL: job.name}
            for key, value in named[0]["spec"]["selector"].items():
                if labels_of_pods.get(key) != value:
                    yield f"the Service selects {key}: {value}, and the pods have {labels_of_pods.get(key)!r}"
            if master and int(master.rpartition(":")[2]) not in [p["port"] for p in named[0]["spec"]["ports"]]:
                yield f"the Service has no port of --master {master}"
    elif services:
        yield f"a Service, which {job.kind} makes itself"

    if len(job.pod["containers"]) != 1:
        yield "more than one container in a pod"
    if job.kind == "TrainJob" and job.container["name"] != "node":
        yield "Trainer sets variables in the container named node only"
    if "TUTTI_SECRET" not in [v["name"] for v in job.container["env"]]:
        yield "TUTTI_SECRET is not taken from a Secret"
    volumes = {v["name"] for v in job.pod["volumes"]}
    mounts = {m["name"]: m["mountPath"] for m in job.container["volumeMounts"]}
    for name in sorted(volumes ^ set(mounts)):
        yield f"the volume {name!r} is not both there and mounted"
    if "/dev/shm" not in mounts.values():
        yield "no volume at /dev/shm: containers have 64 MiB there"
    grace = float(job.option("--grace") or USUAL_GRACE)
    if job.pod["terminationGracePeriodSeconds"] < 2 * grace:
        yield (f"terminationGracePeriodSeconds {job.pod['terminationGracePeriodSeconds']} is short for --grace {grace:g}: "
               "twice that at least")


def problems_of(path):
    try:
        content, documents = read(path)
    except yaml.YAMLError as error:
        return [" ".join(str(error).split())]
    found = []
    if re.search(r"[0-9a-fA-F]{32}|[A-Za-z0-9+/]{43}=", content):
        found.append("something that looks like the value of a secret")
    for number, each in enumerate(documents):
        if not isinstance(each, dict) or each.get("kind") not in KINDS:
            kind = each.get("kind") if isinstance(each, dict) else None
            found.append(f"document {number}: {kind!r} is no kind that these files use")
            continue
        found += [f"{each['kind']}{place}: {wrong}" for place, wrong in KINDS[each["kind"]](each)]
    return found or list(inconsistencies(documents))


def job_in(path):
    documents = read(path)[1]
    return Job(next(d["kind"] for d in documents if d["kind"] in JOBS), documents)


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--pods":
        job = job_in(arguments[1])
        for index in range(job.nodes):
            print("pod", job.first_host)
            for name, value in job.variables_of(index).items():
                print("variable", f"{name}={value}")
            for entry in job.container["env"]:
                print(*(["variable", f"{entry['name']}={entry['value']}"] if "value" in entry else ["secret", entry["name"]]))
            for each in job.command[1:]:
                print("option", each)
            for each in job.program:
                print("program", each)
        return 0
    if len(arguments) == 2 and arguments[0] == "--variables":
        job = job_in(arguments[1])
        print(*[entry["name"] for entry in job.container["env"]], *STARTERS[job.kind].values(), sep="\n")
        return 0
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    found = [f"{path}: {problem}" for path in arguments for problem in problems_of(path)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

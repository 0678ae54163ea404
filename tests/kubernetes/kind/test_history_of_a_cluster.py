"""The history of a quorum on kind: what is shipped becomes a lake, by the CronJob and by Spark with executors.

The tests run in order, each on the state that the previous one left. The module runs by itself: its load on
one machine would decide where the pods of a later module are scheduled.
"""

import json
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.images import LAKE, build_lake_image
from kit.local_kubernetes.kind_cluster import KindCluster
from kit.local_kubernetes.versions import KUBERNETES
from kit.operators.installation import (
    CHART,
    CONTROLLERS,
    QUORUM,
    RELEASE,
    RESTRICTED,
    TIMEOUT_S,
    Installation,
    resource,
)
from kit.waiting import eventually

# The first test pays for the image, and for the cluster if it runs alone.
pytestmark = [
    pytest.mark.timeout(2_400),
    pytest.mark.flaky(reruns=0),
    pytest.mark.skipif(
        "lake-image" not in os.environ.get("QUORATE_REQUIRE", "").split(","),
        reason="takes some six minutes, best by itself: QUORATE_REQUIRE=kind,lake-image and this file run it",
    ),
]

_LOG = logging.getLogger(__name__)
NAMESPACE = "history"
NODE_ID = 3000
CLAIM = f"history-{QUORUM}"
JOB = "take-in-now"
SPARK = "spark"  # a service account that may make executors, and a pod that submits
DRIVER = "driver"
ANSWER_S = 30
_POD_SECURITY = {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}
_POD_SECURITY["seccompProfile"] = RESTRICTED["seccompProfile"]
_ALL = ["create", "get", "list", "watch", "patch", "update", "delete", "deletecollection"]
_MADE_BY_SPARK = ["pods", "services", "configmaps", "persistentvolumeclaims"]
_SPARK: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": SPARK}},
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": SPARK},
        "rules": [
            {"apiGroups": [""], "resources": _MADE_BY_SPARK, "verbs": _ALL},
            {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": _ALL},
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": SPARK},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": SPARK},
        "subjects": [{"kind": "ServiceAccount", "name": SPARK}],
    },
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": SPARK},
        "spec": {
            "serviceAccountName": SPARK,
            "terminationGracePeriodSeconds": 0,
            "securityContext": _POD_SECURITY,
            "containers": [
                {
                    "name": "spark",
                    "image": LAKE,
                    "command": ["sleep", "infinity"],
                    "securityContext": RESTRICTED,
                    "volumeMounts": [{"name": "history", "mountPath": "/history"}],
                }
            ],
            "volumes": [{"name": "history", "persistentVolumeClaim": {"claimName": CLAIM}}],
        },
    },
]


@pytest.fixture(scope="module")
def history(kind_cluster: KindCluster) -> Iterator[Installation]:
    """The operator with our lake's image, and a namespace of its own that is gone when these tests end."""
    build_lake_image(kind_cluster.docker, os.environ, _LOG.info)
    # A volume of kind is on one machine, and all that mounts it goes there: the image needs to be nowhere else.
    kind_cluster.load(LAKE, nodes=kind_cluster.workers[:1])
    installation = Installation(kind_cluster, NAMESPACE)
    with installation.released(_values(installation)):
        yield installation
        installation.kubectl("delete", "kafkacontroller", QUORUM, "--ignore-not-found")
        kind_cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")


def test_every_controller_ships_its_log(history: Installation) -> None:
    template = {
        **CONTROLLERS["template"],
        "nodeSelector": {"kubernetes.io/hostname": history.cluster.workers[0]},
    }
    kept = {
        "storage": {"size": "1Gi", "accessMode": "ReadWriteOnce"},
        "schedule": "0 0 29 2 *",  # not while this test runs, mostly
    }
    spec = {
        **CONTROLLERS,
        "replicas": 1,
        "history": kept,
        "config": {"metadata.log.segment.ms": 5_000},
        "template": template,
    }
    history.apply(resource("KafkaController", QUORUM, spec))

    def shipped() -> list[str]:
        if f"{QUORUM}-{NODE_ID}" not in history.ready_pods():
            return []
        look = ("exec", f"{QUORUM}-{NODE_ID}", "--container=ship", "--")
        found = history.kubectl(*look, "find", "/history", "-name", "*.log")
        return found.split()

    (first, *_) = eventually(shipped, TIMEOUT_S, "a segment that is shipped", lambda: _state(history))
    assert first.startswith("/history/shipped/")
    assert f"/{NODE_ID}/" in first
    history.kubectl("wait", f"kafkacontroller/{QUORUM}", "--for=condition=Ready", "--timeout=120s")


def test_a_job_makes_a_lake_of_it(history: Installation) -> None:
    """The CronJob's pod runs, in our image and without rights."""
    history.kubectl("create", "job", f"--from=cronjob/{QUORUM}", JOB)
    _wait(history, f"job/{JOB}", "jsonpath={.status.conditions}")
    _wait(history, f"job/{JOB}", "condition=Complete", ANSWER_S)
    _LOG.info("%s", history.kubectl("logs", f"job/{JOB}"))

    history.apply(*_SPARK)
    history.kubectl("wait", f"pod/{SPARK}", "--for=condition=Ready", "--timeout=120s")
    (voter,) = _show(history, "lake", "membership")
    assert voter["voter_id"] == NODE_ID
    assert [voter["directory_id"]] == [each["directoryId"] for each in history.voter_statuses()]

    # It is not the schedule that started it.
    wanted = {"lastIngestTime": history.get("job", JOB)["status"]["completionTime"]}

    def expected() -> dict[str, Any]:
        found: dict[str, Any] = history.get("kafkacontroller", QUORUM)["status"]["history"]
        return found

    eventually(lambda: expected() == wanted, TIMEOUT_S, f"the status to say {wanted}", expected)


def test_spark_makes_the_same_lake_with_executors(history: Installation) -> None:
    spec = _spark_application(history)
    for role in ("driver", "executor"):
        contained = {"name": role, "securityContext": spec[role]["securityContext"]}
        pod = {"securityContext": spec[role]["podSecurityContext"], "containers": [contained]}
        template = yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "spec": pod})
        history.kubectl("exec", "-i", SPARK, "--", "tee", f"/tmp/{role}.yaml", stdin=template)
    submit = [
        *("spark-submit", "--master=k8s://https://kubernetes.default.svc", "--deploy-mode=cluster"),
        *(f"--conf={key}={value}" for key, value in _options(spec).items()),
        *(spec["mainApplicationFile"], *spec["arguments"], "--tables=membership"),
    ]
    history.kubectl("exec", SPARK, "--", *submit)
    _wait(history, f"pod/{DRIVER}", "jsonpath={.status.containerStatuses[*].state.terminated}")
    (container,) = history.get("pod", DRIVER)["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 0, _state(history)
    executors = [
        pod["metadata"]["name"]
        for pod in history.get("pods")["items"]
        if pod["metadata"].get("labels", {}).get("spark-role") == "executor"
    ]
    assert executors, _state(history)
    for name in executors:
        assert "Finished task" in history.kubectl("logs", name)
    assert _show(history, "by-spark", "membership") == _show(history, "lake", "membership")


def _spark_application(history: Installation) -> dict[str, Any]:
    """The spec of the chart's SparkApplication, rendered for this claim."""
    asked = {"create": "true", "claimName": CLAIM, "target": "by-spark", "executors": "1", "memory": "1g"}
    values = _values(history, **{f"lake.sparkApplication.{name}": value for name, value in asked.items()})
    only = (f"--kube-version={KUBERNETES}", "--show-only=templates/sparkapplication.yaml")
    rendered = history.helm("template", RELEASE, f"{CHART}", *only, *values)
    spec: dict[str, Any] = yaml.safe_load(rendered)["spec"]
    return spec


def _values(history: Installation, **more: str) -> list[str]:
    repository, tag = LAKE.split(":")
    return history.values(**{"lake.image.repository": repository, "lake.image.tag": tag, **more})


def _options(spec: dict[str, Any]) -> dict[str, object]:
    """What the operator of Spark makes of it, on a small machine; executors that ended stay to be looked at."""
    spark = "spark.kubernetes"
    options: dict[str, object] = {
        f"{spark}.namespace": NAMESPACE,
        f"{spark}.container.image": spec["image"],
        f"{spark}.authenticate.driver.serviceAccountName": spec["driver"]["serviceAccount"],
        f"{spark}.driver.pod.name": DRIVER,
        f"{spark}.submission.waitAppCompletion": "false",
        f"{spark}.executor.deleteOnTermination": "false",
        "spark.executor.instances": spec["executor"]["instances"],
    }
    (volume,), claims = spec["volumes"], "volumes.persistentVolumeClaim"
    for role in ("driver", "executor"):
        (mount,) = spec[role]["volumeMounts"]
        options |= {
            f"{spark}.{role}.{claims}.{volume['name']}.options.claimName": volume["persistentVolumeClaim"][
                "claimName"
            ],
            f"{spark}.{role}.{claims}.{mount['name']}.mount.path": mount["mountPath"],
            f"{spark}.{role}.podTemplateFile": f"/tmp/{role}.yaml",
            f"{spark}.{role}.request.cores": "100m",
            f"spark.{role}.memory": spec[role]["memory"],
        }
    return options


def _show(history: Installation, lake: str, table: str) -> list[dict[str, Any]]:
    """The rows of a table of a lake on the volume."""
    command = ("quorate", "lake", "show", f"/history/{lake}", table, "-o", "json")
    rows: list[dict[str, Any]] = json.loads(history.kubectl("exec", SPARK, "--", *command))["tables"][table]
    return rows


def _wait(history: Installation, what: str, condition: str, timeout_s: int = TIMEOUT_S) -> None:
    """Until it holds for an object; with jsonpath: until there is something."""
    wait = ("wait", what, f"--for={condition}", f"--timeout={timeout_s}s")
    try:
        history.cluster.kubectl(f"--namespace={NAMESPACE}", *wait, timeout_s=timeout_s + ANSWER_S)
    except LocalKubernetesError as error:
        pytest.fail(f"{error}\n{_state(history)}")


def _state(history: Installation) -> str:
    ended = [
        pod["metadata"]["name"]
        for pod in history.get("pods")["items"]
        if pod["status"]["phase"] not in ("Pending", "Running")
    ]
    shown = [
        history.kubectl("get", "pods,pvc,jobs", "-o=wide"),
        history.kubectl("get", "events"),
        *(history.kubectl("logs", name, "--tail=30") for name in ended),
    ]
    return "\n".join(shown)

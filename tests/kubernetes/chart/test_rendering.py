"""The chart: what it becomes with which values, and what it refuses."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.local_kubernetes.versions import KUBERNETES
from quorate_operator.models.manifests import load_manifests
from quorate_operator.models.tenant_policy import DEFAULT_POLICY, TenantPolicy, parse_policy
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.resources.facts import Images
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "quorate"
EVERYTHING: dict[str, Any] = {
    "watchNamespaces": ["*"],
    "policy": {"images": ["registry.example.com/*"], "podSecurity": "any", "addresses": ["10.0.0.0/8"]},
    "metrics": {
        "podMonitor": {"create": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"create": True, "runbookUrl": "https://runbooks.example.com/quorate"},
        "dashboards": {"create": True, "annotations": {"folder": "Kafka"}},
    },
    "web": {"tokenSecret": {"name": "page-token"}},
    "networkPolicy": {"metricsFrom": [{"namespaceSelector": {}}], "webFrom": [{"podSelector": {}}]},
    "serviceAccount": {"annotations": {"a": "b"}},
    "image": {"repository": "registry.example.com/quorate", "digest": f"sha256:{'a' * 64}"},
    "imagePullSecrets": [{"name": "pull"}],
    "operator": {"env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]},
    "kafka": {"image": {"repository": "registry.example.com/kafka", "tag": "{version}-jre21"}},
    "lake": {"image": {"repository": "registry.example.com/quorate-lake", "digest": f"sha256:{'b' * 64}"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "control", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
    "topologySpreadConstraints": [
        {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    ],
}
LITTLE: dict[str, Any] = {
    "replicas": 1,
    "watchNamespaces": ["kafka"],
    "watchSelector": "quorate.dev/operator in (blue, green),!team",
    "web": {"enabled": False},
    "crds": {"install": False},
    "networkPolicy": {"create": False},
    "rbac": {"create": False},
    "serviceAccount": {"create": False, "name": "mine"},
    "tests": {"create": False},
}


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Those of a kind."""
    return [item for item in objects if item["kind"] == kind]


@pytest.mark.parametrize("values", [{}, EVERYTHING, LITTLE], ids=["defaults", "everything", "little"])
def test_helm_finds_nothing_to_complain_about(helm: Callable[..., Any], values: dict[str, Any]) -> None:
    ran = helm("lint", "--strict", str(CHART), "--values", "-", stdin=yaml.safe_dump(values))
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"replicas": 3}, "replicas"),
        ({"replicas": "2"}, "replicas"),
        ({"replcas": 1}, "replcas"),
        ({"image": {"tag": "a b"}}, "image/tag"),
        ({"image": {"digest": "sha256:1"}}, "image/digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "image/pullPolicy"),
        ({"watchNamespaces": ["Kafka"]}, "watchNamespaces/0"),
        ({"watchNamespaces": ["kafka", "kafka"]}, "watchNamespaces"),
        ({"watchNamespaces": ["kafka", "*"]}, "watchNamespaces"),
        ({"policy": {"image": ["a"]}}, "policy"),
        ({"policy": {"images": ["a b"]}}, "policy/images/0"),
        ({"policy": {"podSecurity": "baseline"}}, "policy/podSecurity"),
        ({"policy": {"exposureTypes": ["ClusterIP"]}}, "policy/exposureTypes/0"),
        ({"policy": {"addresses": ["10.0.0.1"]}}, "policy/addresses/0"),
        ({"watchSelector": "a>1"}, "watchSelector"),
        ({"rbac": {"secretNamespaces": ["Kafka"]}}, "rbac/secretNamespaces/0"),
        (
            {"watchNamespaces": ["kafka"], "rbac": {"secretNamespaces": ["other"]}},
            "rbac/secretNamespaces: other is none of watchNamespaces",
        ),
        ({"podSecurity": {"userId": 0}}, "podSecurity/userId"),
        ({"podSecurity": {"userId": "1000"}}, "podSecurity/userId"),
        ({"web": {"tokenSecret": "page-token"}}, "web/tokenSecret"),
        ({"web": {"token": "secret"}}, "token"),
        ({"operator": {"logLevel": "verbose"}}, "operator/logLevel"),
        ({"resources": {"limits": {"memory": "lots"}}}, "resources/limits/memory"),
        ({"metrics": {"podMonitor": {"interval": "0s"}}}, "metrics/podMonitor/interval"),
        ({"networkPolicy": {"webFrom": [{}]}}, "networkPolicy/webFrom/0"),
        ({"crds": {"keep": "yes"}}, "crds/keep"),
        ({"kafka": {"image": {"tag": "4.4.0"}}}, "kafka/image/tag"),
        ({"kafka": {"image": {"repository": "kafka:{version}"}}}, "kafka/image/repository"),
        ({"lake": {"image": {"pullPolicy": "Never"}}}, "pullPolicy"),
        ({"lake": {"sparkApplication": {"create": True}}}, "lake/sparkApplication/claimName"),
        ({"lake": {"sparkApplication": {"target": "/lake"}}}, "lake/sparkApplication/target"),
        ({"lake": {"sparkApplication": {"memory": "2Gi"}}}, "lake/sparkApplication/memory"),
    ],
)
def test_a_wrong_value_is_refused_with_its_field(
    helm: Callable[..., Any], values: dict[str, Any], field: str
) -> None:
    options = ("--kube-version", KUBERNETES, "--values", "-")
    ran = helm("template", "quorate", str(CHART), *options, stdin=yaml.safe_dump(values))
    assert ran.returncode != 0
    assert field in ran.stderr.replace(".", "/")


def test_every_value_is_in_the_schema_and_used() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    templates = "".join(path.read_text() for path in (CHART / "templates").rglob("*.*"))

    def compare(value: dict[str, Any], known: dict[str, Any], path: str) -> None:
        assert known["additionalProperties"] is False, path
        free = {"global"} if not path else {"claims"} if path == ".resources" else set()
        assert set(value) == set(known["properties"]) - free, path
        for name, inner in value.items():
            here = f"{path}.{name}"
            if isinstance(inner, dict) and inner and "properties" in known["properties"][name]:
                if f".Values{here} " not in templates:
                    compare(inner, known["properties"][name], here)
            else:
                assert re.search(rf"\.Values{re.escape(here)}\b", templates), here

    compare(values, schema, "")


@pytest.mark.parametrize("values", [{}, {"watchNamespaces": ["*"]}, {"watchNamespaces": ["kafka"]}])
def test_an_api_server_takes_the_first_cluster_of_the_notes(
    helm: Callable[..., Any], tmp_path: Path, values: dict[str, Any]
) -> None:
    """`helm template` prints no notes: a template of a copy has them."""
    copy = shutil.copytree(CHART, tmp_path / "quorate")
    notes = '{{ dict "notes" (include "quorate/templates/NOTES.txt" .) | toYaml }}'
    (copy / "templates" / "notes.yaml").write_text(notes)
    options = ("--kube-version", KUBERNETES, "--show-only", "templates/notes.yaml", "--values", "-")
    ran = helm("template", "quorate", str(copy), *options, stdin=yaml.safe_dump(values))
    assert ran.returncode == 0, ran.stderr
    # As a shell reads it: the end has no indentation.
    text, end, _ = yaml.safe_load(ran.stdout)["notes"].partition("<<'EOF'\n")[2].partition("\nEOF\n")
    assert end
    definitions = {
        definition["spec"]["names"]["kind"]: definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for definition in map(yaml.safe_load, (path.read_text() for path in (ROOT / "crds").glob("*.yaml")))
    }
    for body in yaml.safe_load_all(text):
        assert set(definitions[body["kind"]]["properties"]["spec"]["required"]) <= body["spec"].keys()
        assert body["spec"]["version"] == DEFAULT_RELEASE
    manifests = load_manifests(text, "NOTES.txt")
    assert len(desired_cluster(manifests).nodes) == 4


def test_all_namespaces_have_to_be_asked_for(render: Callable[..., Any]) -> None:
    """By default the operator manages the namespace that it runs in, also where an overlay changes it."""

    def scope(values: dict[str, Any]) -> tuple[list[str], set[str]]:
        objects = render(values)
        (deployment,) = of_kind(objects, "Deployment")
        arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        cluster_wide = {item["kind"] for item in objects if item["kind"].startswith("ClusterRole")}
        return [argument for argument in arguments if "namespace" in argument], cluster_wide

    assert scope({}) == ([], set())
    assert scope({"watchNamespaces": ["*"]}) == (["--all-namespaces"], {"ClusterRole", "ClusterRoleBinding"})


@pytest.mark.parametrize(
    ("watched", "condition"),
    [
        ([], 'request.namespace in ["quorate-system"]'),
        (["*"], None),
        (["kafka", "staging"], 'request.namespace in ["kafka","staging"]'),
    ],
)
def test_fields_are_strict_where_the_operator_works(
    render: Callable[..., Any], watched: list[str], condition: str | None
) -> None:
    objects = render({"watchNamespaces": watched, "strictFields": {"create": True}})
    (policy,) = of_kind(objects, "ValidatingAdmissionPolicy")
    conditions = {item["name"]: item["expression"] for item in policy["spec"]["matchConditions"]}
    assert conditions.get("watched-namespace") == condition


def test_the_policy_of_the_chart_is_that_of_the_operator(render: Callable[..., Any]) -> None:
    def policy(values: dict[str, Any]) -> TenantPolicy:
        (deployment,) = of_kind(render(values), "Deployment")
        environment = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
        (text,) = [variable["value"] for variable in environment if variable["name"] == "QUORATE_POLICY"]
        return parse_policy(text)

    assert policy({}) == DEFAULT_POLICY
    chosen = policy(EVERYTHING)
    assert (chosen.images, chosen.pod_security) == (("registry.example.com/*",), "any")
    assert chosen.volume_types == DEFAULT_POLICY.volume_types
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["policy"]["properties"]
    assert schema.keys() == DEFAULT_POLICY.model_dump(by_alias=True).keys()


def test_the_definitions_are_those_of_the_models(render: Callable[..., Any]) -> None:
    """`helm upgrade` brings the definitions, and uninstalling keeps them."""
    wanted = {path.name: path for path in (ROOT / "crds").glob("*.yaml")}
    packed = {path.name: path for path in (CHART / "files" / "crds").glob("*.yaml")}
    again = "run tools/crds.py"
    assert {name: path.read_text() for name, path in packed.items()} == {
        name: path.read_text() for name, path in wanted.items()
    }, again
    definitions = {item["metadata"]["name"]: item for item in of_kind(render(), "CustomResourceDefinition")}
    assert len(definitions) == len(wanted) == 5
    for definition in definitions.values():
        kept = definition["metadata"].pop("annotations")
        assert kept == {"helm.sh/resource-policy": "keep"}
        assert definition == yaml.safe_load(wanted[f"{definition['metadata']['name']}.yaml"].read_text())
    for item in of_kind(render({"crds": {"keep": False}}), "CustomResourceDefinition"):
        assert "annotations" not in item["metadata"]
    assert of_kind(render({"crds": {"install": False}}), "CustomResourceDefinition") == []


def test_a_list_of_namespaces_asks_for_nothing_beyond_them(render: Callable[..., Any]) -> None:
    objects = render({"watchNamespaces": ["kafka", "staging"]})
    kinds = {item["kind"] for item in objects}
    assert not kinds & {"ClusterRole", "ClusterRoleBinding"}
    roles = [item["metadata"]["namespace"] for item in of_kind(objects, "Role")]
    assert sorted(roles) == ["kafka", "quorate-system", "staging"]
    (deployment,) = of_kind(objects, "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [argument for argument in arguments if "namespace" in argument] == [
        "--namespace=kafka",
        "--namespace=staging",
    ]


def test_two_releases_do_not_meet(render: Callable[..., Any]) -> None:
    def names(objects: list[dict[str, Any]]) -> set[tuple[str, ...]]:
        return {
            (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
            for item in objects
            if item["kind"] != "CustomResourceDefinition"
        }

    rbac = {"secretNamespaces": ["kafka"], "readNodes": True}
    for values in ({**EVERYTHING, "rbac": rbac}, {"watchNamespaces": ["kafka"], "rbac": rbac}):
        first, second = render(values, release="one"), render(values, release="two", namespace="other")
        assert names(first) & names(second) == set()
        assert names(first) & names(render(values, release="one", namespace="other")) == set()
        assert names(first) & names(render(values, release="two")) == set()


def test_two_releases_share_definitions_and_monitors(render: Callable[..., Any]) -> None:
    def arguments(objects: list[dict[str, Any]]) -> list[str]:
        (deployment,) = of_kind(objects, "Deployment")
        return list(deployment["spec"]["template"]["spec"]["containers"][0]["args"])

    first = render({"watchSelector": "!quorate.dev/operator", "metrics": {"podMonitor": {"create": True}}})
    second = render(
        {
            "watchSelector": "quorate.dev/operator in (blue, green)",
            "crds": {"install": False},
            "metrics": {"podMonitor": {"create": True, "clusters": False}},
        },
        release="blue",
    )
    assert {"--selector=!quorate.dev/operator", "--lease-name=quorate-operator"} <= {*arguments(first)}
    assert {
        "--selector=quorate.dev/operator in (blue, green)",
        "--lease-name=blue-quorate-operator",
    } <= {*arguments(second)}
    assert not [argument for argument in arguments(render()) if argument.startswith("--selector")]
    assert len(of_kind(first, "PodMonitor")) == 3
    assert len(of_kind(second, "PodMonitor")) == 1
    assert of_kind(second, "CustomResourceDefinition") == []


def test_selectors_find_the_pods(render: Callable[..., Any]) -> None:
    """Services, budget and policy are about the operator."""
    objects = render(EVERYTHING)
    (deployment,) = of_kind(objects, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    ports = {port["name"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}
    selectors = [item["spec"]["selector"] for item in of_kind(objects, "Service")]
    selectors += [item["spec"]["selector"]["matchLabels"] for item in of_kind(objects, "PodDisruptionBudget")]
    selectors += [item["spec"]["podSelector"]["matchLabels"] for item in of_kind(objects, "NetworkPolicy")]
    selectors += [
        item["spec"]["selector"]["matchLabels"]
        for item in of_kind(objects, "PodMonitor")
        if item["metadata"]["name"].endswith("-operator")
    ]
    assert len(selectors) == 5
    leading = {**labels, "quorate.dev/leads": "true"}
    for selector in selectors:
        assert selector.items() <= leading.items()
    for service in of_kind(objects, "Service"):
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    # What the policy of each cluster lets through to its controllers.
    assert labels["app.kubernetes.io/name"] == "quorate"
    assert labels["app.kubernetes.io/component"] == "operator"


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_the_operator_knows_its_options(render: Callable[..., Any], values: dict[str, Any]) -> None:
    from quorate.operator_command import app  # noqa: PLC0415
    from typer.main import get_command  # noqa: PLC0415

    (deployment,) = of_kind(render(values), "Deployment")
    first, command, *options = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert (first, command) == ("operator", "run")
    group = get_command(app)
    run = group.get_command(group.make_context("operator", ["run"], resilient_parsing=True), "run")  # type: ignore[attr-defined]
    context = run.make_context("run", options)
    assert context.params["listen"] == ":8080"
    assert context.params["web"] == ":8081"
    assert (context.params["web_token_file"] is not None) == bool(values)


def test_the_operator_is_told_which_images_run_kafka_and_make_lakes(render: Callable[..., Any]) -> None:
    def images(values: dict[str, Any]) -> tuple[str, str]:
        (deployment,) = of_kind(render(values), "Deployment")
        environment = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
        reported = {variable["name"]: variable.get("value") for variable in environment}
        return reported["QUORATE_KAFKA_IMAGE"], reported["QUORATE_LAKE_IMAGE"]

    default = Images(quorate="").kafka
    assert images({}) == (default, "ghcr.io/quorate/quorate-lake:0.1.0")
    assert images({"lake": {"image": {"tag": "9"}}}) == (default, "ghcr.io/quorate/quorate-lake:9")
    assert images(EVERYTHING) == (
        "registry.example.com/kafka:{version}-jre21",
        f"registry.example.com/quorate-lake@sha256:{'b' * 64}",
    )


@pytest.mark.parametrize(
    ("values", "user_id"),
    [
        ({}, 1000),
        ({"podSecurity": {"userId": 1000660000}}, 1000660000),
        ({"podSecurity": {"userId": None}}, None),
    ],
)
def test_pods_run_as_one_user_or_as_the_namespace_has_it(
    render: Callable[..., Any], values: dict[str, Any], user_id: int | None
) -> None:
    """OpenShift's restricted-v2 admits users of the range of the namespace only, and fills in the first."""
    spark = {"lake": {"sparkApplication": {"create": True, "claimName": "history"}}}
    objects = render({**values, **spark})
    (deployment,) = of_kind(objects, "Deployment")
    operator = deployment["spec"]["template"]["spec"]
    (hook,) = of_kind(objects, "Pod")
    (application,) = of_kind(objects, "SparkApplication")
    ids = {} if user_id is None else {"runAsUser": user_id, "runAsGroup": user_id}
    group = {} if user_id is None else {"fsGroup": user_id}
    restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert operator["securityContext"] == hook["spec"]["securityContext"] == restricted | ids
    for pod in ("driver", "executor"):
        assert application["spec"][pod]["podSecurityContext"] == restricted | ids | group
    environment = {variable["name"]: variable.get("value") for variable in operator["containers"][0]["env"]}
    assert environment["QUORATE_USER_ID"] == ("none" if user_id is None else str(user_id))


def test_an_application_of_spark_does_what_the_job_does(render: Callable[..., Any]) -> None:
    from quorate.lake_command import app  # noqa: PLC0415
    from typer.main import get_command  # noqa: PLC0415

    assert not [item for item in render() if "spark" in item["apiVersion"]]
    wanted = {"create": True, "claimName": "history-quorum", "namespace": "kafka", "executors": 4}
    (once,) = of_kind(render({"lake": {"sparkApplication": wanted}}), "SparkApplication")
    values = {
        "lake": {"sparkApplication": {**wanted, "schedule": "17 * * * *"}},
        "imagePullSecrets": [{"name": "p"}],
    }
    (planned,) = of_kind(render(values), "ScheduledSparkApplication")
    assert planned["spec"]["schedule"] == "17 * * * *"
    assert planned["spec"]["template"] == {**once["spec"], "imagePullSecrets": ["p"]}
    assert once["metadata"]["namespace"] == "kafka"
    group = get_command(app)
    command, *arguments = once["spec"]["arguments"]
    parsed = group.commands[command].make_context(command, arguments).params  # type: ignore[attr-defined]
    assert (list(parsed["sources"]), parsed["to"]) == (["/history/shipped"], "/history/lake")
    (volume,) = once["spec"]["volumes"]
    for part in ("driver", "executor"):
        (mount,) = once["spec"][part]["volumeMounts"]
        assert (mount["name"], mount["mountPath"]) == (volume["name"], "/history")
        assert once["spec"][part]["podSecurityContext"]["runAsNonRoot"]
    assert once["spec"]["executor"]["instances"] == 4


def test_one_replica_blocks_no_drain(render: Callable[..., Any]) -> None:
    assert of_kind(render({"replicas": 1}), "PodDisruptionBudget") == []
    assert len(of_kind(render(), "PodDisruptionBudget")) == 1


def test_what_is_turned_off_is_not_there(render: Callable[..., Any]) -> None:
    kinds = sorted(item["kind"] for item in render(LITTLE))
    assert kinds == ["Deployment", "Service"]


def test_metrics_of_alerts_and_dashboards_exist(render: Callable[..., Any]) -> None:
    from quorate_operator.handlers.metrics import OperatorMetrics  # noqa: PLC0415

    pages = [(ROOT / "docs" / name).read_text() for name in ("metrics.md", "broker-metrics.md")]
    known = set(re.findall(r"^\| `([a-z0-9_]+)`", "\n".join(pages), re.MULTILINE))
    known |= set(re.findall(r"`(process_[a-z_]+)`", (ROOT / "docs" / "metrics.md").read_text()))
    for family in OperatorMetrics().registry.collect():
        known |= {family.name, *(f"{family.name}_{end}" for end in ("total", "bucket", "count", "sum"))}
    objects = render(EVERYTHING)
    (rule,) = of_kind(objects, "PrometheusRule")
    expressions = [rule_["expr"] for group in rule["spec"]["groups"] for rule_ in group["rules"]]
    for dashboard in of_kind(objects, "ConfigMap"):
        for text in dashboard["data"].values():
            content = json.loads(text)
            expressions += [
                target["expr"] for panel in content["panels"] for target in panel.get("targets", ())
            ]
            assert len({panel["id"] for panel in content["panels"]}) == len(content["panels"])
    assert len(expressions) > 40
    used = set().union(
        *(re.findall(r"\b(?:kafka|quorate|process)_[a-z0-9_]+", expression) for expression in expressions)
    )
    used -= {"quorate_dev_cluster", "quorate_dev_pool"}
    assert used - known == set()
    for expression in expressions:
        for opening, closing in ("()", "{}", "[]"):
            assert expression.count(opening) == expression.count(closing), expression


def test_each_alert_has_its_section_in_the_runbook(render: Callable[..., Any]) -> None:
    (rule,) = of_kind(render(EVERYTHING), "PrometheusRule")
    alerts = [alert for group in rule["spec"]["groups"] for alert in group["rules"]]
    headings = re.findall(
        r"^### (Quorate\w+)$", (ROOT / "docs" / "operations" / "alerts.md").read_text(), re.MULTILINE
    )
    assert headings == [alert["alert"] for alert in alerts]
    for alert in alerts:
        anchor = f"#{alert['alert'].lower()}"
        assert alert["annotations"]["runbook"] == f"docs/operations/alerts.md{anchor}"
        assert alert["annotations"]["runbook_url"] == f"https://runbooks.example.com/quorate{anchor}"
        assert alert["labels"]["severity"] in ("critical", "warning")
        assert alert["annotations"]["summary"]

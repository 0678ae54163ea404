"""Which changes of our resources a real API server refuses, in which words, and which it accepts."""

from copy import deepcopy

import pytest
from kit.api_requests import Api, Object, resource, secured, tokens_alone, with_tokens

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
OTHER_ID = "MkU3OEVBNTcwNTJENDM2Qg"

CHANGES: list[tuple[str, Object, Object, str, str]] = [
    (
        "KafkaController",
        {},
        {"nodeIds": {"first": 5}},
        "spec.nodeIds.first",
        "can't be changed: nodes keep their ids",
    ),
    (
        "KafkaController",
        {"clusterId": CLUSTER_ID},
        {"clusterId": OTHER_ID},
        "clusterId",
        "it is on every disk",
    ),
    ("KafkaController", {"clusterId": CLUSTER_ID}, {"clusterId": None}, "clusterId", "it is on every disk"),
    ("KafkaController", {}, {"quorum": "static"}, "quorum", "can go from static to dynamic, and not back"),
    (
        "KafkaController",
        {},
        {"placement": {"type": "WithBrokers", "pool": "a"}},
        "spec.placement",
        "can't be changed: the voters are known by the addresses of their pods",
    ),
    (
        "KafkaController",
        {"placement": {"type": "WithBrokers", "pool": "a"}},
        {"placement": None},
        "spec.placement",
        "can't be changed: the voters are known by the addresses of their pods",
    ),
    ("KafkaController", {}, {"listeners": [{"name": "OTHER"}]}, "listeners[0].name", "can't be changed"),
    (
        "KafkaController",
        {},
        {"listeners": [secured()], "state": "Hibernated"},
        "listeners[0].protocol can't be changed while nodes run",
        "set state to Hibernated first",
    ),
    (
        "KafkaBroker",
        {"listeners": [{"name": "A"}]},
        {"listeners": [secured() | {"name": "A"}]},
        "listeners[0].protocol can't be changed",
        "put a listener of another name before it",
    ),
    (
        "KafkaController",
        {"scramUsers": {"secretName": "a"}},
        {"scramUsers": {"secretName": "b"}},
        "spec.scramUsers",
        "use kafka-configs --alter",
    ),
    (
        "KafkaController",
        {"scramUsers": {"secretName": "a"}},
        {"scramUsers": None},
        "scramUsers can't be",
        "removed",
    ),
    (
        "KafkaController",
        {"storage": {"size": "10Gi"}},
        {"storage": {"size": "9Gi"}},
        "size",
        "volumes only grow",
    ),
    (
        "KafkaController",
        {},
        {"storage": {"className": "fast"}},
        "className",
        "a volume stays in its storage class",
    ),
    (
        "KafkaBroker",
        {},
        {"storage": {"volumes": [{"id": 1}]}},
        "volumes: must have the id 0",
        "can't be removed",
    ),
    (
        "KafkaBroker",
        {"storage": {"size": "10Gi"}},
        {"storage": {"volumes": [{"id": 0}]}},
        "volumes: must not be set beside size and className",
        "remove one of them",
    ),
    (
        "KafkaBroker",
        {"storage": {"size": "20Gi"}},
        {"storage": {"size": None, "volumes": [{"id": 0, "size": "10Gi"}]}},
        "size",
        "volumes only grow",
    ),
    (
        "KafkaBroker",
        {"storage": {"className": "fast"}},
        {"storage": {"className": None, "volumes": [{"id": 0}]}},
        "className",
        "a volume stays in its storage class",
    ),
    (
        "KafkaBroker",
        {"storage": {"volumes": [{"id": 0}, {"id": 1, "className": "fast"}]}},
        {"storage": {"volumes": [{"id": 0}, {"id": 1, "className": "slow"}]}},
        "spec.storage.volumes[1]",
        "a volume stays in its storage class",
    ),
    (
        "KafkaBroker",
        {"storage": {"volumes": [{"id": 0}, {"id": 1, "size": "10Gi"}]}},
        {"storage": {"volumes": [{"id": 1, "size": 9}, {"id": 0}]}},
        "spec.storage.volumes[0]",
        "volumes only grow",
    ),
    (
        "KafkaBroker",
        {},
        {"storage": {"volumes": [{"id": 0}, {"id": 0}]}},
        "spec.storage.volumes[1]",
        "Duplicate value",
    ),
    ("KafkaBroker", {}, {"storage": {"volumes": []}}, "spec.storage.volumes", "should have at least 1 items"),
    (
        "KafkaController",
        {"history": {"storage": {"size": "10Gi"}}},
        {"history": {"storage": {"size": "9Gi"}}},
        "spec.history.storage",
        "volumes only grow",
    ),
    (
        "KafkaController",
        {"history": {"storage": {"size": "10Gi"}}},
        {"history": {"storage": {"className": "fast"}}},
        "spec.history.storage",
        "className and accessMode are immutable",
    ),
    (
        "KafkaBroker",
        {},
        {"controllers": "others"},
        "spec.controllers",
        "brokers' disks belong to one cluster",
    ),
    (
        "KafkaBroker",
        {"nodeIds": {"first": 0}},
        {"nodeIds": {"first": 9}},
        "spec.nodeIds.first",
        "decommission nodes instead",
    ),
    (
        "KafkaBroker",
        {"replicas": 1, "listeners": [{"name": "A", "advertisedHost": "fixed.example.com"}]},
        {"replicas": 2},
        "listeners: advertisedHost",
        "must have {nodeId}, {offset} or {pod}",
    ),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_can_not_change_is_refused(
    api: Api, namespace: str, change: tuple[str, Object, Object, str, str]
) -> None:
    kind, spec, merged, *words = change
    assert api.create(namespace, resource(kind, spec=spec)).status == 201
    response = api.change(namespace, kind, "one", merged)
    assert response.status == 422, response.body
    assert [word for word in words if word not in response.message] == [], response.message


ALLOWED_CHANGES: list[tuple[str, Object, Object]] = [
    ("KafkaController", {}, {"clusterId": CLUSTER_ID}),
    ("KafkaController", {"quorum": "static"}, {"quorum": "dynamic"}),
    ("KafkaController", {"state": "Hibernated"}, {"listeners": [secured()]}),
    (
        "KafkaController",
        {"listeners": [{"name": "A"}]},
        {"listeners": [{"name": "B", "protocol": "SSL"}, {"name": "A"}]},
    ),
    (
        "KafkaController",
        {"listeners": [{"name": "B", "protocol": "SSL"}, {"name": "A"}]},
        {"listeners": [{"name": "B", "protocol": "SSL"}]},
    ),
    (
        "KafkaBroker",
        {"listeners": [{"name": "A"}, {"name": "B"}]},
        {"listeners": [{"name": "B"}, {"name": "A"}]},
    ),
    ("KafkaBroker", {}, {"storage": {"volumes": [{"id": 0}, {"id": 1, "className": "fast"}]}}),
    (
        "KafkaBroker",
        {"storage": {"size": "20Gi", "className": "fast"}},
        {
            "storage": {
                "size": None,
                "className": None,
                "volumes": [{"id": 0, "size": "30Gi", "className": "fast"}],
            }
        },
    ),
    (
        "KafkaBroker",
        {"storage": {"volumes": [{"id": 0}, {"id": 1}, {"id": 2, "size": 5}]}},
        {"storage": {"volumes": [{"id": 7}, {"id": 2, "size": "1Gi"}, {"id": 0}]}},
    ),
    (
        "KafkaBroker",
        {"storage": {"volumes": [{"id": 0, "size": "5Gi"}, {"id": 1}]}},
        {"storage": {"volumes": None, "size": "5Gi"}},
    ),
    ("KafkaController", {}, {"authorization": {"superUsers": ["User:ANONYMOUS"]}}),
    ("KafkaController", {"listeners": [secured()]}, {"listeners": [secured(username="other")]}),
    (
        "KafkaBroker",
        {"listeners": [{"name": "A"}]},
        {"listeners": [{"name": "A"}, {"name": "B", "protocol": "SSL", "tls": {"secretName": "s"}}]},
    ),
    ("KafkaController", {"storage": {"size": "9Gi"}}, {"storage": {"size": "10Gi"}}),
    ("KafkaController", {"storage": {"size": 1000}}, {"storage": {"size": "1k"}}),
    (
        "KafkaController",
        {},
        {"replicas": 5, "decommission": [3001], "advertisedHost": "c{offset}.example.com"},
    ),
    ("KafkaController", {}, {"history": {"storage": {"size": "1Gi"}}}),
    ("KafkaController", {"history": {"storage": {"size": "1Gi"}}}, {"history": None}),
    (
        "KafkaController",
        {"history": {"storage": {"size": "1Gi"}}},
        {"history": {"storage": {"size": "2Gi"}, "suspend": True}},
    ),
    (
        "KafkaController",
        {"history": {"storage": {"size": "1Gi"}}},
        {"history": {"storage": None, "claimName": "archive"}},
    ),
    (
        "KafkaController",
        {"replicas": 1},
        {"history": {"storage": {"size": "1Gi", "accessMode": "ReadWriteOnce"}, "schedule": "@daily"}},
    ),
    ("KafkaBroker", {}, {"version": "4.3.1", "config": {"num.io.threads": 4, "log.preallocate": "true"}}),
    (
        "KafkaBroker",
        with_tokens(),
        with_tokens(
            ["SCRAM-SHA-512", "PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"],
            jwksUrl="https://sso.example.com:8443/realms/a%20b/certs?v=1",
            trustedSecretName="ca",
            subjectClaim="azp",
            clockSkewSeconds=0,
        ),
    ),
    ("KafkaBroker", with_tokens(), with_tokens(jwksUrl=None, jwksSecretName="keys")),
    (
        "KafkaBroker",
        with_tokens(),
        {"listeners": [secured(mechanisms=["PLAIN"], reauthentication="1h"), tokens_alone()]},
    ),
    (
        "KafkaController",
        {"listeners": [secured(mechanisms=["PLAIN"])]},
        with_tokens(["PLAIN", "OAUTHBEARER"], trustedSecretName="ca"),
    ),
    ("KafkaBroker", {}, {"replicas": 0, "nodes": [{"nodeId": 7, "rack": "r"}]}),
]


@pytest.mark.parametrize(("kind", "spec", "change"), ALLOWED_CHANGES)
def test_what_may_change_is_accepted(
    api: Api, namespace: str, kind: str, spec: Object, change: Object
) -> None:
    assert api.create(namespace, resource(kind, spec=deepcopy(spec))).status == 201
    response = api.change(namespace, kind, "one", change)
    assert response.status == 200, response.message


def test_the_cluster_id_of_the_disks_wins(api: Api, namespace: str) -> None:
    assert api.create(namespace, resource("KafkaController")).status == 201
    assert api.change_status(namespace, "KafkaController", "one", {"clusterId": CLUSTER_ID}).status == 200
    refused = api.change(namespace, "KafkaController", "one", {"clusterId": OTHER_ID})
    assert (
        f"spec.clusterId: '{OTHER_ID}': must be '{CLUSTER_ID}', the id that is on the disks"
        in refused.message
    )
    for other in (OTHER_ID, None):
        refused = api.change_status(namespace, "KafkaController", "one", {"clusterId": other})
        assert refused.status == 422
        assert "clusterId can't be changed or removed once it is set" in refused.message
    assert api.change(namespace, "KafkaController", "one", {"clusterId": CLUSTER_ID}).status == 200

"""What a real API server refuses of our resources, and in which words: no webhook is there to help."""

from typing import Any

import pytest
from kit.api_requests import Api, Object, resource, secured, tokens_alone, with_tokens
from quorate_operator.models.manifests import ENTITIES, ManifestError, load_entity, load_object
from quorate_protocol.kafka.releases import RELEASES

DURING = "DuringSchedulingIgnoredDuringExecution"
WITH_BROKERS = {"placement": {"type": "WithBrokers", "pool": "brokers"}}
SSL_WITHOUT_TLS = {"listeners": [{"name": "A", "protocol": "SSL"}]}


CONTROLLERS: list[tuple[dict[str, Any], str, str]] = [
    ({"replicas": 0}, "spec.replicas: Invalid value: 0", "greater than or equal to 1"),
    ({"replicas": 10}, "spec.replicas: Invalid value: 10", "less than or equal to 9"),
    ({"replicas": "3"}, 'spec.replicas: Invalid value: "string"', "must be of type integer"),
    (
        {"logLevels": {"root": "LOUD"}},
        'spec.logLevels.root: Unsupported value: "LOUD"',
        'supported values: "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"',
    ),
    ({"replcias": 3}, 'unknown field "spec.replcias"', ""),
    ({"clusterId": "abc"}, 'spec.clusterId: Invalid value: "abc"', "^[A-Za-z0-9_-]{22}$"),
    (
        {"quorum": "elastic"},
        'spec.quorum: Unsupported value: "elastic"',
        'supported values: "dynamic", "static"',
    ),
    ({"metadataVersion": "latest"}, 'spec.metadataVersion: Invalid value: "latest"', "should match"),
    ({"version": None}, "spec.version: Required value", ""),
    ({"version": "4"}, 'spec.version: Invalid value: "4"', "should match"),
    ({"version": "4.99.0"}, "spec.version", f"must be one of the supported releases {', '.join(RELEASES)}"),
    ({"version": "4.4.9"}, "spec.version", f"must be one of the supported releases {', '.join(RELEASES)}"),
    ({"nodeIds": {"first": -1}}, "spec.nodeIds.first: Invalid value: -1", "greater than or equal to 0"),
    ({"nodeIds": {}}, "spec.nodeIds.first: Required value", ""),
    ({"nodeIds": {"first": 2147483647}}, "nodeIds.first", "go beyond 2147483647, which is the last"),
    ({"listeners": []}, "spec.listeners: Invalid value: 0", "at least 1 items"),
    ({"listeners": [{"name": "a"}]}, 'spec.listeners[0].name: Invalid value: "a"', "^[A-Z][A-Z0-9_]*$"),
    ({"listeners": [{"name": "A", "port": 70000}]}, "spec.listeners[0].port: Invalid value: 70000", "65535"),
    (
        {"listeners": [{"name": "A", "tls": {}}]},
        "spec.listeners[0]",
        "tls is allowed with protocol SSL and SASL_SSL only",
    ),
    (
        {"listeners": [{"name": "A", "protocol": "SASL_SSL", "tls": {"secretName": "s"}}]},
        "spec.listeners[0]",
        "sasl is needed with protocol SASL_SSL, and allowed with no other",
    ),
    (
        {"listeners": [secured(mechanisms=["SCRAM-SHA-512", "PLAIN"])]},
        "spec.listeners[0].sasl.mechanisms",
        "the first must be PLAIN: controllers log in at each other with it",
    ),
    (
        {"listeners": [secured(mechanisms=["PLAIN", "PLAIN"])]},
        "spec.listeners[0].sasl.mechanisms",
        "each mechanism may appear once",
    ),
    (
        {"listeners": [secured(mechanisms=["PLAIN", "OAUTHBEARER"])]},
        "spec.listeners[0].sasl",
        "oauth is needed with the mechanism OAUTHBEARER",
    ),
    (
        with_tokens(["OAUTHBEARER"]),
        "spec.listeners[0].sasl.mechanisms",
        "the first must be PLAIN: controllers log in at each other with it",
    ),
    (
        {"listeners": [secured(mechanisms=["GSSAPI"])]},
        'spec.listeners[0].sasl.mechanisms[0]: Unsupported value: "GSSAPI"',
        'supported values: "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"',
    ),
    (
        {"listeners": [secured(username="a:b")]},
        'spec.listeners[0].sasl.username: Invalid value: "a:b"',
        "should match",
    ),
    (
        {"listeners": [{"name": "A", "protocol": "GSSAPI"}]},
        'spec.listeners[0].protocol: Unsupported value: "GSSAPI"',
        '"PLAINTEXT", "SSL", "SASL_SSL"',
    ),
    *(
        ({"listeners": [{"name": "A", "protocol": "SSL", "tls": tls}]}, "spec.listeners[0].tls", expected)
        for tls, expected in (
            (
                {"secretName": "s", "issuerRef": {"name": "ca"}},
                "secretName: this or issuerRef may be set, and only one of them",
            ),
            ({"secretName": "s", "duration": "90d"}, "duration is not allowed with secretName"),
            ({"secretName": "s", "renewBefore": "1d"}, "renewBefore is not allowed with secretName"),
        )
    ),
    (
        {"authorization": {"superUsers": ["admin"]}},
        'spec.authorization.superUsers[0]: Invalid value: "admin"',
        "should match",
    ),
    (
        {"authorization": {"superUsers": ["User:a"]}, "config": {"super.users": "User:a"}},
        "config: authorization stands for authorizer.class.name and super.users",
        "",
    ),
    ({"nodes": [{"nodeId": 1}]}, "nodes: node ids of this pool", "nodeIds.first to nodeIds.first + 99"),
    ({"nodes": [{"nodeId": 3000}, {"nodeId": 3000}]}, "spec.nodes[1]: Duplicate value", '"nodeId":3000'),
    (
        {"nodes": [{"nodeId": 3000, "implementation": "go"}]},
        "spec.nodes[0].implementation",
        '"python", "java"',
    ),
    (
        {"nodes": [{"nodeId": 3000, "advertisedHosts": {"X": "h"}}]},
        "advertisedHosts",
        "must be the name of one of the listeners",
    ),
    (
        {"nodes": [{"nodeId": 3000, "advertisedHosts": {"CONTROLLER": "a b"}}]},
        'spec.nodes[0].advertisedHosts.CONTROLLER: Invalid value: "a b"',
        "should match",
    ),
    (
        {"placement": {"type": "WithBrokers"}},
        "spec.placement",
        "pool: is needed with type WithBrokers, and only there",
    ),
    ({"placement": {"pool": "brokers"}}, "spec.placement", "pool: is needed with type WithBrokers"),
    (
        {"placement": {"type": "Beside"}},
        "spec.placement.type: Unsupported value",
        '"Separate", "WithBrokers"',
    ),
    (
        {**WITH_BROKERS, "quorum": "static"},
        "placement.type: WithBrokers is for dynamic quorums",
        "set quorum: dynamic",
    ),
    (
        {**WITH_BROKERS, "nodes": [{"nodeId": 3000, "implementation": "java"}]},
        "nodes: implementation: stock Kafka's controller can't run in the pod of a broker",
        "set placement.type: Separate",
    ),
    *(
        (
            {**WITH_BROKERS, "template": {field: value}},
            f"template.{field}: with placement.type WithBrokers, pods are those of brokers",
            "set it in their KafkaBroker",
        )
        for field, value in (
            ("labels", {"a": "b"}),
            ("nodeSelector", {"a": "b"}),
            ("tolerations", [{"key": "a"}]),
            ("affinity", {}),
            ("topologySpreadConstraints", []),
            ("serviceAccountName", "a"),
            ("sidecars", [{"name": "a", "image": "b"}]),
            ("securityContext", {}),
        )
    ),
    ({"decommission": [3100]}, "decommission: node ids of this pool", "nodeIds.first to nodeIds.first + 99"),
    ({"decommission": [3001, 3001]}, "spec.decommission[1]: Duplicate value: 3001", ""),
    (
        {"advertisedHost": "a{node}"},
        "spec.advertisedHost",
        "'a{node}': must be a host; placeholders are {nodeId}",
    ),
    (
        {"advertisedHost": "same"},
        "advertisedHost: must have {nodeId}, {offset} or {pod}",
        "replicas is more than 1",
    ),
    (
        {"rollout": {"maxUnavailable": 2}},
        "spec.rollout.maxUnavailable: Invalid value: 2",
        "less than or equal to 1",
    ),
    ({"rollout": {"overlap": "1w"}}, 'spec.rollout.overlap: Invalid value: "1w"', "(ms|s|m|h|d)"),
    (
        {"rollout": {"windows": [{"start": "24:00", "duration": "1h"}]}},
        'spec.rollout.windows[0].start: Invalid value: "24:00"',
        "2[0-3]",
    ),
    (
        {"rollout": {"windows": [{"start": "22:00", "duration": "0h"}]}},
        'spec.rollout.windows[0].duration: Invalid value: "0h"',
        "[mhd]",
    ),
    (
        {"rollout": {"windows": [{"start": "22:00", "duration": "1h", "days": ["Saturday"]}]}},
        'spec.rollout.windows[0].days[0]: Unsupported value: "Saturday"',
        "Sat",
    ),
    ({"storage": {"size": "big"}}, 'spec.storage.size: Invalid value: "big"', "should match"),
    (
        {"storage": {"onDecommission": "Burn"}},
        'spec.storage.onDecommission: Unsupported value: "Burn"',
        '"Retain"',
    ),
    (
        {"config": {"node.id": 3}},
        "spec.config",
        "follow from the rest of the manifest and can't be set: advertised",
    ),
    ({"config": {"advertised.host": "x"}}, "spec.config", "can't be set: advertised.*"),
    ({"config": {"a": [1]}}, "spec.config.a", "must be of type"),
    (
        {"config": {"log.preallocate": True}},
        'spec.config.log.preallocate: Invalid value: "boolean"',
        "must be of type",
    ),
    (
        {"template": {"resources": {"limits": {"memory": "lots"}}}},
        'spec.template.resources.limits.memory: Invalid value: "lots"',
        "should match",
    ),
    (
        {"template": {"affinity": {"podAntiAfinity": {}}}},
        'unknown field "spec.template.affinity.podAntiAfinity"',
        "",
    ),
    (
        {"template": {"affinity": {"podAffinity": {f"required{DURING}": [{"topologykey": "zone"}]}}}},
        f'unknown field "spec.template.affinity.podAffinity.required{DURING}[0].topologykey"',
        "",
    ),
    (
        {"template": {"affinity": {"podAffinity": {f"preferred{DURING}": [{"weight": 101}]}}}},
        f"spec.template.affinity.podAffinity.preferred{DURING}[0].weight: Invalid value: 101",
        "less than or equal to 100",
    ),
    (
        {"template": {"imagePullPolicy": "Maybe"}},
        "spec.template.imagePullPolicy",
        '"Always", "IfNotPresent", "Never"',
    ),
    ({"state": "Asleep"}, 'spec.state: Unsupported value: "Asleep"', '"Running", "Paused", "Hibernated"'),
    (
        {"entityNamespaces": ["team-*"]},
        'spec.entityNamespaces[0]: Invalid value: "team-*"',
        "should match",
    ),
    ({"history": {}}, "spec.history", "must have either storage, for a new volume, or claimName"),
    (
        {"history": {"claimName": "a", "storage": {"size": "1Gi"}}},
        "spec.history",
        "must have either storage, for a new volume, or claimName",
    ),
    ({"history": {"storage": {}}}, "spec.history.storage.size: Required value", ""),
    (
        {"history": {"storage": {"size": "1Gi", "accessMode": "ReadWriteOnce"}}},
        "history.storage.accessMode: ReadWriteOnce is for controllers on one Kubernetes node",
        "must be ReadWriteMany",
    ),
    (
        {"history": {"storage": {"size": "1Gi", "accessMode": "ReadOnlyMany"}}},
        'spec.history.storage.accessMode: Unsupported value: "ReadOnlyMany"',
        '"ReadWriteMany", "ReadWriteOnce"',
    ),
    (
        {"history": {"claimName": "a", "schedule": "hourly"}},
        'spec.history.schedule: Invalid value: "hourly"',
        "should match",
    ),
    (
        {"history": {"claimName": "a", "lake": "shipped/x"}},
        "lake: must not be in shipped",
        "which holds the shipped log",
    ),
    (
        {"history": {"claimName": "a", "lake": "../x"}},
        'spec.history.lake: Invalid value: "../x"',
        "should match",
    ),
]

STRICTER_HERE: list[Object] = [{"config": {"log.preallocate": True}}, {"config": {"a": True}}]
"""What `quorate play` takes: YAML's true has to be in quotes for Kubernetes."""

BROKERS: list[tuple[dict[str, Any], str, str]] = [
    ({"controllers": "Upper"}, 'spec.controllers: Invalid value: "Upper"', "should match"),
    ({"controllers": None}, "spec.controllers: Required value", ""),
    ({"replicas": 1001}, "spec.replicas: Invalid value: 1001", "less than or equal to 1000"),
    ({"listeners": [{"name": "A"}, {"name": "A"}]}, "spec.listeners[1]: Duplicate value", '"name":"A"'),
    (
        {"rack": {"topologyKey": "zone"}, "nodes": [{"nodeId": 2, "rack": "a"}]},
        "rack: gives each node a rack",
        "remove nodes[].rack, or rack",
    ),
    (
        {"rack": {"topologyKey": "zone"}, "config": {"broker.rack": "a"}},
        "rack: stands for broker.rack and config.providers of config",
        "remove them, or rack",
    ),
    (
        {"template": {"terminationGracePeriodSeconds": 0}},
        "spec.template.terminationGracePeriodSeconds: Invalid value: 0",
        "greater than or equal to 1",
    ),
    (
        {"version": "4.4.9"},
        "version: must be one of the supported releases",
        "or another of 4.3, 4.4 with image",
    ),
    ({"version": "4.5.0", "image": "a:b"}, "spec.version", "or another of 4.3, 4.4 with image"),
    ({"customConfigKeys": ["a*"]}, 'spec.customConfigKeys[0]: Invalid value: "a*"', "should match"),
    ({"rack": {"topologyKey": ""}}, "spec.rack.topologyKey: Invalid value", "at least 1 chars long"),
    (
        with_tokens(["OAUTHBEARER", "PLAIN"]),
        "spec.listeners[0].sasl.mechanisms",
        "OAUTHBEARER must be alone or come after PLAIN or SCRAM: the operator logs in with the first mechanism",
    ),
    (
        with_tokens(["OAUTHBEARER"]),
        "spec.listeners[0].sasl",
        "username is needed with PLAIN and SCRAM, and not allowed with OAUTHBEARER alone",
    ),
    (
        {"listeners": [tokens_alone()]},
        "spec.listeners",
        "OAUTHBEARER alone is allowed on the other listeners only: brokers and the operator log in at the first one",
    ),
    *(
        (
            {"listeners": [listener]},
            "spec.listeners[0].sasl",
            "oauth is needed with the mechanism OAUTHBEARER",
        )
        for listener in (
            secured(mechanisms=["PLAIN", "OAUTHBEARER"]),
            secured(oauth={"jwksSecretName": "keys", "issuer": "a", "audiences": ["kafka"]}),
        )
    ),
    *(
        (with_tokens(**oauth), f"spec.listeners[0].sasl.oauth{field}", expected)
        for oauth, field, expected in (
            (
                {"jwksSecretName": "keys"},
                "",
                "jwksUrl: this or jwksSecretName is needed, and only one of them",
            ),
            ({"jwksUrl": None}, "", "jwksUrl: this or jwksSecretName is needed, and only one of them"),
            (
                {"jwksUrl": "http://sso", "trustedSecretName": "ca"},
                "",
                "trustedSecretName is allowed with a jwksUrl that begins with https: only",
            ),
            ({"jwksUrl": "file:/etc/passwd"}, ".jwksUrl: Invalid value", "should match"),
            ({"jwksUrl": "https://sso/,https://b"}, ".jwksUrl: Invalid value", "should match"),
            ({"issuer": "${directory:/a:b}"}, ".issuer: Invalid value", "should match"),
            ({"issuer": None}, ".issuer: Required value", ""),
            ({"audiences": ["a,b"]}, ".audiences[0]: Invalid value", "should match"),
            ({"audiences": []}, ".audiences: Invalid value: 0", "at least 1 items"),
            ({"subjectClaim": "a b"}, ".subjectClaim: Invalid value", "should match"),
            (
                {"clockSkewSeconds": 3601},
                ".clockSkewSeconds: Invalid value: 3601",
                "less than or equal to 3600",
            ),
        )
    ),
    (
        {"listeners": [{"name": "A", "tls": {"secretName": "s"}}]},
        "spec.listeners[0]",
        "tls is allowed with protocol SSL and SASL_SSL only",
    ),
    (
        {"listeners": [{"name": "A", "exposure": {"type": "Gateway"}}]},
        'spec.listeners[0].exposure.type: Unsupported value: "Gateway"',
        '"Internal", "LoadBalancer", "NodePort", "Ingress", "Route", "External"',
    ),
    (
        {"listeners": [{"name": "A", "exposure": {"type": "NodePort", "loadBalancerClass": "a/b"}}]},
        "spec.listeners[0].exposure",
        "loadBalancerClass is allowed with type LoadBalancer only",
    ),
    (
        {"listeners": [{"name": "A", "exposure": {"type": "Internal", "bootstrapHost": "a"}}]},
        "spec.listeners[0].exposure",
        "bootstrapHost is allowed with type LoadBalancer, NodePort, Ingress and Route only",
    ),
    *(
        ({"listeners": [{"name": "A", "exposure": exposure}]}, "spec.listeners[0].exposure", expected)
        for exposure, expected in (
            (
                {"type": "Internal", "externalTrafficPolicy": "Local"},
                "externalTrafficPolicy is allowed with type LoadBalancer and NodePort only",
            ),
            (
                {"type": "Internal", "ipFamilies": ["IPv6"]},
                "ipFamilies is allowed with type LoadBalancer, NodePort, Ingress and Route only",
            ),
            (
                {"type": "NodePort", "ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "SingleStack"},
                "ipFamilies has one entry with ipFamilyPolicy SingleStack",
            ),
            (
                {"type": "NodePort", "nodes": [{"nodeId": 0, "loadBalancerIP": "10.0.0.1"}]},
                "loadBalancerIP is allowed with type LoadBalancer only",
            ),
            (
                {"type": "NodePort", "bootstrap": {"loadBalancerIP": "10.0.0.1"}},
                "loadBalancerIP is allowed with type LoadBalancer only",
            ),
            ({"type": "NodePort", "nodes": [{"nodeId": 0}, {"nodeId": 0}]}, "Duplicate value"),
            ({"type": "NodePort", "nodes": [{"nodeId": 0, "nodePort": 70000}]}, "65535"),
            ({"type": "NodePort", "verification": "Maybe"}, '"Probe", "DNS", "None"'),
        )
    ),
    (
        {"services": {"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "SingleStack"}},
        "spec.services",
        "ipFamilies has one entry with ipFamilyPolicy SingleStack",
    ),
    (
        {"listeners": [{"name": "A", "advertisedHost": "b{nodeId}.a", "exposure": {"type": "Ingress"}}]},
        "spec.listeners[0]",
        "protocol must be SSL or SASL_SSL with exposure.type Ingress and Route",
    ),
    (
        {"listeners": [{"name": "A", "exposure": {"type": "External"}}]},
        "spec.listeners[0]",
        "advertisedHost is required with exposure.type Ingress, Route and External",
    ),
    (
        {"listeners": [{"name": "A", "advertisedHost": "same"}]},
        "listeners: advertisedHost: must have {nodeId}, {offset} or {pod}",
        "replicas is more than 1",
    ),
    (
        {"listeners": [{"name": "A", "interimHost": "same", "exposure": {"type": "NodePort"}}]},
        "listeners: interimHost: must have {nodeId}, {offset} or {pod}",
        "replicas is more than 1",
    ),
    (
        {"listeners": [{"name": "A", "advertisedHost": "{broker}.x"}]},
        "spec.listeners[0].advertisedHost",
        "'{broker}.x': must be a host; placeholders are {nodeId}",
    ),
    (
        {"listeners": [{"name": "A", "advertisedPort": 0}]},
        "spec.listeners[0].advertisedPort: Invalid value: 0",
        "1",
    ),
    ({"nodes": [{"nodeId": 0, "rack": ""}]}, 'spec.nodes[0].rack: Invalid value: ""', "at least 1 chars"),
    (
        {"nodeIds": {"first": 0}, "decommission": [10000]},
        "decommission: node ids of this pool",
        "nodeIds.first to nodeIds.first + 9999",
    ),
    (
        {"rollout": {"maxUnavailable": 0}},
        "spec.rollout.maxUnavailable: Invalid value: 0",
        "greater than or equal",
    ),
]


TOPICS: list[tuple[dict[str, Any], str, str]] = [
    ({"cluster": None}, "spec: Invalid value", "either cluster or bootstrapServers must be given"),
    (
        {"bootstrapServers": ["a:1"]},
        "spec: Invalid value",
        "either cluster or bootstrapServers must be given",
    ),
    ({"cluster": None, "bootstrapServers": ["a"]}, 'spec.bootstrapServers[0]: Invalid value: "a"', "match"),
    ({"security": {"protocol": "PLAINTEXT"}}, "security: is for bootstrapServers", "says how it is secured"),
    (
        {"cluster": None, "bootstrapServers": ["a:1"], "clusterNamespace": "b"},
        "clusterNamespace: is the namespace of cluster",
        "bootstrapServers are in none",
    ),
    ({"clusterNamespace": "B"}, 'spec.clusterNamespace: Invalid value: "B"', "should match"),
    (
        {
            "cluster": None,
            "bootstrapServers": ["a:1"],
            "security": {"protocol": "SASL_SSL", "secretName": "s"},
        },
        "spec.security",
        "mechanism: is needed with protocol SASL_SSL or SASL_PLAINTEXT",
    ),
    (
        {
            "cluster": None,
            "bootstrapServers": ["a:1"],
            "security": {"protocol": "SASL_SSL", "mechanism": "PLAIN"},
        },
        "spec.security",
        "secretName: is needed with protocol SASL_SSL or SASL_PLAINTEXT",
    ),
    ({"topicName": "a b"}, 'spec.topicName: Invalid value: "a b"', "should match"),
    ({"topicName": "__consumer_offsets"}, "spec.topicName", "one of those that brokers keep"),
    ({"partitions": 0}, "spec.partitions: Invalid value: 0", "greater than or equal to 1"),
    ({"replicationFactor": 33}, "spec.replicationFactor: Invalid value: 33", "less than or equal to 32"),
    ({"config": {"a": True}}, 'spec.config.a: Invalid value: "boolean"', "must be of type"),
    ({"deletionPolicy": "Burn"}, 'spec.deletionPolicy: Unsupported value: "Burn"', '"Retain", "Delete"'),
    ({"partition": 1}, 'unknown field "spec.partition"', ""),
]

_TOPIC = {"type": "Topic", "name": "a"}
USERS: list[tuple[dict[str, Any], str, str]] = [
    ({"cluster": None}, "spec: Invalid value", "either cluster or bootstrapServers must be given"),
    (
        {"authentication": {"type": "plain"}},
        'spec.authentication.type: Unsupported value: "plain"',
        '"scram-sha-512", "scram-sha-256", "tls"',
    ),
    (
        {"authentication": {"type": "tls", "secretName": "s"}},
        "spec.authentication",
        "secretName: is for scram-sha-512 and scram-sha-256",
    ),
    (
        {"authentication": {"type": "scram-sha-512", "issuerRef": {"name": "ca"}}},
        "spec.authentication",
        "issuerRef: is for tls",
    ),
    (
        {"authentication": {"type": "tls", "renewBefore": "1d"}},
        "spec.authentication",
        "renewBefore is allowed with issuerRef only",
    ),
    (
        {"authentication": {"type": "tls", "issuerRef": {"name": "ca"}}, "userName": "a" * 65},
        "spec.userName: is the common name of the certificate, which has at most 64 characters",
        "",
    ),
    (
        {"authentication": {"type": "scram-sha-512", "principal": "User:a"}},
        "spec.authentication",
        "principal: is for tls",
    ),
    (
        {"acls": [{"resource": {"type": "Cluster", "name": "a"}, "operations": ["Alter"]}]},
        "spec.acls[0].resource",
        "the resource of type Cluster is kafka-cluster",
    ),
    (
        {"acls": [{"resource": _TOPIC, "operations": ["Write", "Write"]}]},
        "operations[1]: Duplicate value",
        "",
    ),
    ({"acls": [{"resource": _TOPIC, "operations": ["Look"]}]}, "spec.acls[0].operations[0]", '"Read"'),
    ({"acls": [{"operations": ["Read"]}]}, "spec.acls[0].resource: Required value", ""),
    ({"quotas": {"requestPercentage": 0}}, "spec.quotas.requestPercentage", "must be at least 0.01"),
    ({"userName": "a b"}, 'spec.userName: Invalid value: "a b"', "should match"),
]

REBALANCES: list[tuple[dict[str, Any], str, str]] = [
    ({"cluster": None}, "spec: Invalid value", "either cluster or bootstrapServers must be given"),
    ({"mode": "Some"}, 'spec.mode: Unsupported value: "Some"', '"Full", "AddBrokers", "RemoveBrokers"'),
    ({"mode": "AddBrokers"}, "spec: Invalid value", "brokers: are needed with mode AddBrokers"),
    ({"brokers": [3]}, "spec: Invalid value", "not allowed with Full"),
    ({"throttleBytesPerSecond": "fast"}, "spec.throttleBytesPerSecond", "should match"),
    ({"partitionsAtATime": 101}, "spec.partitionsAtATime: Invalid value: 101", "less than or equal to 100"),
    ({"topics": {"include": ["a b"]}}, 'spec.topics.include[0]: Invalid value: "a b"', "should match"),
    ({"approval": "Never"}, 'spec.approval: Unsupported value: "Never"', '"Manual", "Auto"'),
]


@pytest.mark.parametrize(
    ("kind", "spec", "words"),
    [("KafkaController", spec, words) for spec, *words in CONTROLLERS]
    + [("KafkaBroker", spec, words) for spec, *words in BROKERS]
    + [("KafkaTopic", spec, words) for spec, *words in TOPICS]
    + [("KafkaUser", spec, words) for spec, *words in USERS]
    + [("KafkaRebalance", spec, words) for spec, *words in REBALANCES],
)
def test_what_can_not_be_is_refused(
    api: Api, namespace: str, kind: str, spec: Object, words: list[str]
) -> None:
    """A message names the field and what is allowed; so do models, but for unknown fields."""
    item = resource(kind, spec=spec)
    response = api.create(namespace, item)
    assert response.status in (400, 422), response.body
    assert [word for word in words if word not in response.message] == [], response.message
    if spec not in STRICTER_HERE and not words[0].startswith("unknown field"):
        with pytest.raises(ManifestError):
            (load_entity if kind in ENTITIES else load_object)(item, "here")


@pytest.mark.parametrize("name", ["3brokers", "a.b", "x" * 53])
def test_names_that_pods_could_not_have_are_refused(api: Api, namespace: str, name: str) -> None:
    response = api.create(namespace, resource("KafkaBroker", name))
    assert response.status == 422
    assert "metadata.name: " in response.message

"""Many topics and users that are deleted at once, and some whose cluster never answered."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kit.cluster import free_ports
from kit.operators.operated import SMALL_FILES, Operated, condition_of
from kit.operators.resources import InClusters
from quorate_admin.types.topics import TopicListing

TOPICS = 300
BROKERS_TIMEOUT_S = 240
MANY_TIMEOUT_S = 120
CLIENTS = 16
"""How many requests of the test the API server has at the same time."""


@pytest.mark.timeout(900)
def test_hundreds_of_topics_come_and_go(brokered: Operated) -> None:
    """300 topics are deleted within the two minutes in which one request for each was not enough."""
    operated = brokered
    operated.create(replicas=1)
    operated.create_brokers(replicas=1, config={**SMALL_FILES, "offsets.topic.replication.factor": "1"})
    operated.start_operator("--no-leader-election")
    operated.wait(lambda: operated.brokers_settled(0), "a broker to be ready", BROKERS_TIMEOUT_S)
    topics = InClusters(operated, "KafkaTopic")
    names = [f"t-{number}" for number in range(TOPICS)]

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(
            clients.map(
                lambda name: topics.create(name, partitions=1, replicationFactor=1, deletionPolicy="Delete"),
                names,
            )
        )
        operated.wait(lambda: len(in_kafka(operated)) == TOPICS, "the topics", MANY_TIMEOUT_S)
        operated.wait(lambda: all(map(is_ready, topics.list())), "the topics to be ready", MANY_TIMEOUT_S)
        list(clients.map(topics.delete, names))
    operated.wait(lambda: not topics.list(), "the resources to go", MANY_TIMEOUT_S)
    assert in_kafka(operated) == {}
    assert not operated.operators[-1].errors()


def test_a_namespace_goes_with_resources_whose_cluster_never_answered(operated: Operated) -> None:
    servers = {"cluster": None, "bootstrapServers": [f"127.0.0.1:{free_ports(1)}"]}
    topics, users = InClusters(operated, "KafkaTopic"), InClusters(operated, "KafkaUser")
    topics.create("orders", **servers, deletionPolicy="Delete")
    users.create("alice", **servers)
    operated.start_operator("--no-leader-election")
    for resources, name in ((topics, "orders"), (users, "alice")):
        operated.wait(
            lambda resources=resources, name=name: (
                resources.condition(name, "Ready").get("reason") == "Unreachable"
            ),
            f"{name} to be without a cluster",
        )

    # The namespace terminates: this control plane has no controller that deletes what is in it.
    operated.core.delete_namespace(operated.namespace)
    topics.delete("orders")
    users.delete("alice")
    operated.wait(lambda: not topics.list() and not users.list(), "the resources to go")


def in_kafka(operated: Operated) -> dict[str, TopicListing]:
    """The topics that exist."""
    return dict(operated.asking(0)(lambda client: client.list_topics()))


def is_ready(resource: dict[str, Any]) -> bool:
    """Whether the last status says so."""
    return condition_of(resource, "Ready").get("status") == "True"

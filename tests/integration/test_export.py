"""`quorate export` on a real cluster: what it prints changes nothing there."""

import yaml
from kit.cluster import Cluster
from kit.names import unused
from kit.tool_runner import run_tool
from quorate_admin.client import AdminClient
from quorate_admin.types.credentials import UserScramCredentialUpsertion
from quorate_admin.types.quotas import ClientQuotaAlteration, ClientQuotaEntity
from quorate_admin.types.topics import NewTopic
from quorate_operator.entities.topics import ObservedTopic, plan_topic
from quorate_operator.gateway.topics import observe_topics
from quorate_operator.models.manifests import load_entity
from quorate_operator.models.topics import KafkaTopic
from quorate_protocol.kafka.enums import USER, ScramMechanism


async def test_what_is_exported_is_what_is_there(shared_cluster: Cluster) -> None:
    """GitOps can begin on a living cluster."""
    servers = shared_cluster.bootstrap_servers
    topic, user = f"Export.{unused('topic')}", unused("user")
    entity = ClientQuotaEntity.of({USER: user})
    async with AdminClient(bootstrap_servers=servers.split(",")) as admin:
        new = NewTopic(name=topic, partitions=3, replication_factor=1, configs={"retention.ms": "600000"})
        (await admin.create_topics([new])).raise_any()
        quota = ClientQuotaAlteration(entity=entity, values={"producer_byte_rate": 5.0})
        (await admin.alter_client_quotas([quota])).raise_any()
        scram = UserScramCredentialUpsertion(
            user=user, mechanism=ScramMechanism.SCRAM_SHA_512, password="kept-secret"
        )
        (await admin.alter_user_scram_credentials([scram])).raise_any()

        ran = await run_tool("export", "--bootstrap-server", servers)
        assert ran.exit_code == 0, ran.stderr
        documents = list(yaml.safe_load_all(ran.stdout))
        resource = load_entity(
            next(document for document in documents if document["spec"].get("topicName") == topic), "exported"
        )
        assert isinstance(resource, KafkaTopic)
        (observed,) = (await observe_topics(admin, [topic], {})).values()
        assert isinstance(observed, ObservedTopic)
        plan = plan_topic(resource, observed)
        assert (tuple(plan.changes), tuple(plan.refusals)) == ((), ())
        (exported,) = [document for document in documents if document["metadata"]["name"] == user]
        # Without an authorizer there is nothing to say about ACLs.
        assert exported["spec"] == {
            "bootstrapServers": servers.split(","),
            "quotas": {"producerByteRate": 5},
        }
        assert f"User:{user} has credentials for SCRAM-SHA-512" in ran.stderr
        assert "kept-secret" not in ran.stdout + ran.stderr

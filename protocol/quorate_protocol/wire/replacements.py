"""Fields that a version of a message replaced by another field, and how their values translate."""

from collections.abc import Callable
from typing import Any, Final

from quorate_protocol.errors import UnsupportedVersion
from quorate_protocol.kafka.enums import UpgradeType
from quorate_protocol.kafka.generated.api_keys import ApiKey
from quorate_protocol.kafka.metadata_log import METADATA_TOPIC, METADATA_TOPIC_ID
from quorate_protocol.plain_data import dataclass

from .schema import FieldSchema

__all__ = ("REPLACEMENTS", "Replacement", "Translation")


Translation = Callable[[Any, FieldSchema], Any]
"""(value of the source's field, schema of the target's field) -> value for the target"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A field of older versions and the field that replaced it, in one struct of one API."""

    api_key: int
    struct: str
    old: str
    new: str
    to_new: Translation
    to_old: Translation


def _topic_names_to_topics(names: Any, field: FieldSchema) -> Any:
    assert field.struct is not None
    return tuple(field.struct(name=name, topic_id=None) for name in names)


def _topics_to_topic_names(topics: Any, _: FieldSchema) -> Any:
    if any(topic.name is None for topic in topics):
        raise UnsupportedVersion("topics can't be deleted by id before DeleteTopics version 6")
    return tuple(topic.name for topic in topics)


def _topic_id_of(name: Any, _: FieldSchema) -> Any:
    # Only the metadata topic is fetched from a controller, and its id never changes.
    return METADATA_TOPIC_ID if name == METADATA_TOPIC else None


def _topic_name_of(topic_id: Any, _: FieldSchema) -> Any:
    return METADATA_TOPIC if topic_id == METADATA_TOPIC_ID else ""


def _ids_to_structs(id_field: str) -> Translation:
    def translate(ids: Any, field: FieldSchema) -> Any:
        assert field.struct is not None
        others = {"broker_epoch": -1} if id_field == "broker_id" else {"candidate_directory_id": None}
        return tuple(field.struct(**{id_field: number}, **others) for number in ids)

    return translate


def _structs_to_ids(id_field: str) -> Translation:
    return lambda structs, _: tuple(getattr(struct, id_field) for struct in structs)


def _replica_id_to_state(replica_id: Any, field: FieldSchema) -> Any:
    assert field.struct is not None
    return field.struct(replica_id=replica_id)


REPLACEMENTS: Final = (
    Replacement(
        api_key=ApiKey.FETCH,
        struct="FetchRequest",
        old="replica_id",
        new="replica_state",
        to_new=_replica_id_to_state,
        to_old=lambda state, _: state.replica_id,
    ),
    *(
        Replacement(
            api_key=ApiKey.FETCH,
            struct=struct,
            old="topic",
            new="topic_id",
            to_new=_topic_id_of,
            to_old=_topic_name_of,
        )
        for struct in ("FetchTopic", "ForgottenTopic", "FetchableTopicResponse")
    ),
    Replacement(
        api_key=ApiKey.DELETE_TOPICS,
        struct="DeleteTopicsRequest",
        old="topic_names",
        new="topics",
        to_new=_topic_names_to_topics,
        to_old=_topics_to_topic_names,
    ),
    Replacement(
        api_key=ApiKey.END_QUORUM_EPOCH,
        struct="PartitionData",
        old="preferred_successors",
        new="preferred_candidates",
        to_new=_ids_to_structs("candidate_id"),
        to_old=_structs_to_ids("candidate_id"),
    ),
    Replacement(
        api_key=ApiKey.ALTER_PARTITION,
        struct="PartitionData",
        old="new_isr",
        new="new_isr_with_epochs",
        to_new=_ids_to_structs("broker_id"),
        to_old=_structs_to_ids("broker_id"),
    ),
    Replacement(
        api_key=ApiKey.UPDATE_FEATURES,
        struct="FeatureUpdateKey",
        old="allow_downgrade",
        new="upgrade_type",
        to_new=lambda is_allowed, _: UpgradeType.SAFE_DOWNGRADE if is_allowed else UpgradeType.UPGRADE,
        to_old=lambda upgrade_type, _: upgrade_type != UpgradeType.UPGRADE,
    ),
)

"""Arrays that many messages have in common are encoded once."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from quorate_protocol.errors import ErrorCode, StringTooLong
from quorate_protocol.kafka.generated.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from quorate_protocol.wire.codec import SharedArray, encode
from quorate_protocol.wire.codec.functions import CodecFunctions
from quorate_protocol.wire.codec.generated_writers import generated_writer
from quorate_protocol.wire.codec.write_values import Writer
from quorate_protocol.wire.schema import STRING_SIZE_BYTES_MAX, EntityClass


def _config(name: str) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(name=name, value="v", read_only=False, config_source=5, is_sensitive=False)


def _response(topic: str, configs: tuple[CreatableTopicConfigs, ...]) -> CreateTopicsResponse:
    result = CreatableTopicResult(
        name=topic, topic_id=None, error_code=ErrorCode.none, error_message=None, configs=configs
    )
    return CreateTopicsResponse(throttle_time=timedelta(0), topics=(result,))


@pytest.fixture
def written() -> Counter[EntityClass]:
    """How often an entity of each class was written."""
    return Counter()


@pytest.fixture
def write(written: Counter[EntityClass]) -> Writer:
    """The writer of CreateTopicsResponse."""

    def make_counted(entity_type: EntityClass, others: Any) -> Writer:
        write = generated_writer(entity_type, others)

        def write_counted(buffer: bytearray, entity: Any) -> None:
            written[entity_type] += 1
            write(buffer, entity)

        return write_counted

    return CodecFunctions(make_counted)[CreateTopicsResponse]


def test_a_shared_array_is_encoded_once(write: Writer, written: Counter[EntityClass]) -> None:
    configs = (_config("a"), _config("b"))
    shared = SharedArray(configs)
    for topic in ("one", "two"):
        buffer = bytearray()
        write(buffer, _response(topic, shared))
        assert buffer == encode(_response(topic, configs))
    assert written[CreatableTopicResult] == 2
    assert written[CreatableTopicConfigs] == len(configs)


def test_a_shared_array_that_cannot_be_written_is_refused_each_time(write: Writer) -> None:
    shared = SharedArray([_config("a"), _config("b" * (STRING_SIZE_BYTES_MAX + 1))])
    for _ in range(2):
        with pytest.raises(StringTooLong):
            write(bytearray(), _response("one", shared))

"""Message classes of each version against kio's, which are generated from the same schemas by other code."""

from dataclasses import MISSING
from typing import Any

import pytest
from kit.kio_oracle import RENAMED, kios_class
from quorate_protocol.kafka.apis import APIS
from quorate_protocol.kafka.generated.default_principal_data import DefaultPrincipalData
from quorate_protocol.kafka.generated.leader_change_message import LeaderChangeMessage
from quorate_protocol.kafka.generated.request_header import RequestHeader
from quorate_protocol.kafka.generated.response_header import ResponseHeader
from quorate_protocol.kafka.generated.snapshot_header_record import SnapshotHeaderRecord
from quorate_protocol.kafka.generated.voters_record import VotersRecord
from quorate_protocol.kafka.schemas import older_classes
from quorate_protocol.wire.schema import schema_of


def assert_same(ours: Any, theirs: Any) -> None:
    for name in ("__name__", "__version__", "__flexible__"):
        assert getattr(ours, name) == getattr(theirs, name)
    for field, other in zip(schema_of(ours), schema_of(theirs), strict=True):
        assert other.name in (field.name, RENAMED.get(field.name))
        for name in ("kafka_type", "is_array", "is_nullable", "tag", "is_legacy_string"):
            assert getattr(field, name) == getattr(other, name), (ours, field.name, name)
        if field.struct is not None:
            assert_same(field.struct, other.struct)
            assert field.is_array or other.default is MISSING or field.default is not MISSING
        elif MISSING not in (field.default, other.default):
            assert field.default == other.default, (ours, field.name)


@pytest.mark.parametrize("key", sorted(APIS))
def test_requests_and_responses_are_as_kios(key: int) -> None:
    api = APIS[key]
    for version in range(api.version_min, api.version_max + 1):
        for ours, kind in (
            (api.request_class(version), "request"),
            (api.response_class(version), "response"),
        ):
            theirs = kios_class(f"{api.name}{kind.capitalize()}", version, kind)
            if theirs is not None:
                assert_same(ours, theirs)


@pytest.mark.parametrize(
    ("ours", "kind"),
    [
        (RequestHeader, "header"),
        (ResponseHeader, "header"),
        (DefaultPrincipalData, "data"),
        (LeaderChangeMessage, "data"),
        (SnapshotHeaderRecord, "data"),
        (VotersRecord, "data"),
    ],
)
def test_headers_and_control_records_are_as_kios(ours: Any, kind: str) -> None:
    name = ours.__name__
    assert_same(ours, kios_class(name, ours.__version__, kind))
    older = ours.__version__ - 1
    if theirs := kios_class(name, older, kind):
        assert_same(older_classes(name, older)[name], theirs)

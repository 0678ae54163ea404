"""Texts that users and other programs write: options, files that options name, annotations, expressions."""

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Final
from unittest.mock import patch

from kit.fuzz.files import captured_files
from kit.fuzz.target import Target, as_text
from quorate.console import CommandError, UsageError
from quorate.tools.configs.changes import Changes, credential_alterations, parse_add_config, quota_values
from quorate.tools.leader_election import parse_partitions
from quorate.tools.metadata_shell.interactive import run_line
from quorate.tools.metadata_shell.nodes import Node
from quorate.tools.metadata_shell.shell_builtins import ShellState
from quorate.tools.metadata_shell.sources import visible
from quorate.tools.metadata_shell.tree import image_root
from quorate.tools.reassign_partitions.files import parse_reassignment, parse_topics
from quorate_admin.config import AdminConfig
from quorate_admin.errors import ConfigError
from quorate_controller.control.regular_expressions import is_regular_expression
from quorate_operator.resources.services import ANNOTATION_PUBLISHED, LABEL_NODE_ID, publications_of
from quorate_operator.runtime.last_error import LENGTH_MAX, last_error
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.loading import load_checkpoint
from quorate_protocol.java_expressions import UnsupportedExpressionError, compile_java
from quorate_protocol.kafka.config_schema import (
    ConfigValueError,
    Definition,
    broker_definitions,
    client_metrics_definitions,
    group_definitions,
    topic_definitions,
)
from quorate_protocol.properties import parse_properties
from quorate_protocol.security.jaas import parse_jaas
from quorate_protocol.security.scram import Challenged, ScramClient, ScramError, check_server

_SCRAM: Final = ScramClient(mechanism="SCRAM-SHA-256", username="u", password="p", nonce="abc")


def _read_client_properties(data: bytes) -> None:
    AdminConfig.from_properties(parse_properties(as_text(data)))


def _client_properties() -> Iterator[bytes]:
    yield (
        b"bootstrap.servers=h:9092,[::1]:9093\nclient.id=c\nrequest.timeout.ms=1000\nretries = 3\n"
        b"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.endpoint.identification.algorithm=\n"
        b"sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        b'username="u" password="p\\\\"q";\n'
    )
    yield b"bootstrap.controllers:h:9093\nmetadata.recovery.strategy=none\ndefault.api.timeout.ms=60000\n"


def _read_jaas(data: bytes) -> None:
    parse_jaas(as_text(data))


def _jaas() -> Iterator[bytes]:
    yield b"a.b.PlainLoginModule required username=\"u\" password='\\101\\n' tokenauth=true; // all\n"
    yield b'/* one */ M sufficient x="";'


def _authenticate(data: bytes) -> None:
    """Both messages of a server, one in a line each. The many rounds of the password's hash are left out."""
    first, _, last = data.partition(b"\n")
    check_server(_challenged(first), last)


def _challenged(first: bytes) -> Challenged:
    with patch.object(hashlib, "pbkdf2_hmac", lambda name, *_: hashlib.new(name).digest()):
        return _SCRAM.challenged(first)


def _challenges() -> Iterator[bytes]:
    for first in (b"r=abcdef,s=c2FsdA==,i=4096", b"r=abcd,s=c2FsdA==,i=8192,x=y"):
        yield first + b"\nv=" + base64.b64encode(_challenged(first).server_signature)


def _read_json_options(data: bytes) -> None:
    text = as_text(data)
    parses: tuple[Callable[[str], object], ...] = (parse_reassignment, parse_topics, parse_partitions)
    for parse in parses:
        with suppress(CommandError, UsageError):
            parse(text)


def _json_options() -> Iterator[bytes]:
    yield b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any","/d"]}]}'
    yield b'{"version":1,"topics":[{"topic":"a"},{"topic":"b"}]}'
    yield b'{"partitions":[{"topic":"a","partition":1}]}'


def _read_config_options(data: bytes) -> None:
    to_set = parse_add_config(as_text(data))
    changes = Changes(to_set=to_set, to_delete=())
    with suppress(UsageError):
        quota_values(changes)
    with suppress(UsageError, KeyError):
        credential_alterations("u", changes)


def _config_options() -> Iterator[bytes]:
    yield b"cleanup.policy=[compact,delete],retention.ms=1,x="
    yield b"SCRAM-SHA-256=[iterations=8192,password=a,b=c],producer_byte_rate=1_0e3"


@cache
def _definitions() -> tuple[Definition, ...]:
    sections: tuple[Callable[[], Mapping[str, Definition]], ...] = (
        topic_definitions,
        broker_definitions,
        group_definitions,
        client_metrics_definitions,
    )
    return tuple(text for section in sections for text in section().values())


def _read_config_values(data: bytes) -> None:
    """The first two bytes choose the config."""
    number = int.from_bytes(data[:2], "big") % len(_definitions())
    definition, text = _definitions()[number], as_text(data[2:])
    normal = definition.normalize(text)
    assert definition.normalize(normal) == normal


def _config_values() -> Iterator[bytes]:
    """Each default, by which coverage finds each kind of check."""
    for number, definition in enumerate(_definitions()):
        text = definition.default
        if text is not None:
            with suppress(ConfigValueError):
                definition.normalize(text)
                yield number.to_bytes(2, "big") + text.encode()


def _read_expressions(data: bytes) -> None:
    is_regular_expression(as_text(data))
    with suppress(UnsupportedExpressionError):
        compile_java(as_text(data))


def _expressions() -> Iterator[bytes]:
    yield from (
        rb"kafka-(?:python|java)-[\w.]{1,20}\Z",
        rb"[a-z&&[^bc]]+(?i)x\x41\u0041\p{L}*+",
        rb"^\[]a{2,}?$",
    )


def _read_objects(data: bytes) -> None:
    """The text of an annotation that the operator wrote, edited by a user."""
    text = as_text(data)
    annotations = {ANNOTATION_PUBLISHED: text}
    labels = {LABEL_NODE_ID: text if text.isdigit() else "3"}
    publications_of({"metadata": {"name": "s", "labels": labels, "annotations": annotations}})


def _objects() -> Iterator[bytes]:
    yield b'[{"host":"h","port":9092,"listener":"EXTERNAL","sinceMs":1,"retiredAtMs":2}]'
    yield b"[]"


@cache
def _tree() -> Node:
    image = MetadataImage()
    *_, content = captured_files("*-0000000001.checkpoint")
    load_checkpoint(image, [content], end_offset=218, epoch=1)
    return image_root(*visible(image), lambda: "1")


def _run_shell_line(data: bytes) -> None:
    state = ShellState(_tree(), history=[])
    for line in as_text(data).split("\n")[:4]:
        for number, _ in enumerate(run_line(state, line)):
            assert number < 100_000


def _shell_lines() -> Iterator[bytes]:
    yield b"cd image/topics\nls *\ncat by{Name,Id}/?*/0/data\npwd"
    yield b"tree /image/cl*/\nfind '*'\nhistory 3\nman cat"
    yield b"ls \"a b\" \\{x 'y'\nexit"


def _find_last_errors(data: bytes) -> None:
    """The log of a process, or the message of a container that ended."""
    for marked_only in (False, True):
        found = last_error(as_text(data), marked_only=marked_only)
        assert found is None or (len(found) <= LENGTH_MAX and found.isprintable())


def _last_words() -> Iterator[bytes]:
    yield (
        b"[2026-11-28 09:00:00,002] ERROR Exiting Kafka due to fatal exception (kafka.Kafka$)\n"
        b"java.lang.RuntimeException: could not start\n\tat kafka.Kafka.main(Kafka.scala:10)\n\t... 7 more\n"
        b"Caused by: java.nio.file.AccessDeniedException: /data\n"
    )
    yield b'{"ts": 1, "level": "ERROR", "event": "a\\nb", "error": "c", "traceback": "File\\nValueError: d"}\nlast'
    yield b'Traceback (most recent call last):\n  File "q", line 8, in <module>\n    ^^^\nquorate: error: in use'


def text_targets() -> Iterator[Target]:
    """All texts but those of `targets`."""
    yield Target(
        name="client-properties",
        read=_read_client_properties,
        good=_client_properties,
        refusals=(ConfigError, ValueError),
    )
    yield Target(name="jaas", read=_read_jaas, good=_jaas, refusals=(ValueError,))
    yield Target(name="scram", read=_authenticate, good=_challenges, refusals=(ScramError,))
    yield Target(name="json-options", read=_read_json_options, good=_json_options)
    yield Target(
        name="config-options", read=_read_config_options, good=_config_options, refusals=(UsageError,)
    )
    yield Target(
        name="config-values",
        read=_read_config_values,
        good=_config_values,
        refusals=(ConfigValueError,),
    )
    yield Target(name="expressions", read=_read_expressions, good=_expressions)
    yield Target(name="publications", read=_read_objects, good=_objects, refusals=(ValueError,))
    yield Target(name="last-errors", read=_find_last_errors, good=_last_words)
    yield Target(name="shell-lines", read=_run_shell_line, good=_shell_lines)

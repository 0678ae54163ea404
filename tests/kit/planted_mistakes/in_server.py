"""Mistakes in the translation of raft's messages, in which ACL a request needs, in whose turn it is, in memory."""

from __future__ import annotations

from typing import Final

from kit.planted_mistakes.mistake import Mistake

_CONTROLLER: Final = "controller_node/quorate_controller"
_SERVER: Final = f"{_CONTROLLER}/server"
_TESTS: Final = "unit/controller/server"

MISTAKES: Final = (
    Mistake(
        name="a Fetch without a high watermark knows the lowest",
        file=f"{_SERVER}/raft_wire/requests.py",
        edits=(
            (
                "high_watermark=None if known == HIGH_WATERMARK_UNSUPPORTED else known,",
                "high_watermark=known,",
            ),
        ),
        harm="Fetch requests of older releases are never held: a loop of empty answers",
        tests=(f"{_TESTS}/test_raft_wire.py",),
    ),
    Mistake(
        name="a pre-vote is taken for a vote",
        file=f"{_SERVER}/raft_wire/requests.py",
        edits=(("        pre_vote=partition.pre_vote,\n", "        pre_vote=False,\n"),),
        harm="a node that comes back deposes a good leader",
        tests=(f"{_TESTS}/test_raft_wire.py",),
    ),
    Mistake(
        name="the last epoch of a candidate's log is that of its candidacy",
        file=f"{_SERVER}/raft_wire/requests.py",
        edits=(
            ("last_offset_epoch=partition.last_offset_epoch,", "last_offset_epoch=partition.replica_epoch,"),
        ),
        harm="a candidate with an old log wins",
        tests=(f"{_TESTS}/test_raft_wire.py",),
    ),
    Mistake(
        name="successors without their directories",
        file=f"{_SERVER}/raft_wire/requests.py",
        edits=(("directory_id=candidate.candidate_directory_id)", "directory_id=None)"),),
        harm="a replica with a new disk stands at once in place of the one that was meant",
        tests=(f"{_TESTS}/test_raft_wire.py",),
    ),
    Mistake(
        name="a follower's last epoch is the leader's",
        file=f"{_SERVER}/raft_wire/requests.py",
        edits=(
            (
                "        last_fetched_epoch=partition.last_fetched_epoch,\n",
                "        last_fetched_epoch=partition.current_leader_epoch,\n",
            ),
        ),
        harm="a log that diverges is taken for a prefix",
        tests=(f"{_TESTS}/test_raft_wire.py",),
    ),
    Mistake(
        name="AddRaftVoter waits for the commit in any case",
        file=f"{_SERVER}/raft_wire/requests.py",
        edits=(
            (
                (
                    "endpoints=_endpoints(request.listeners),\n"
                    "                ack_when_committed=request.ack_when_committed,"
                ),
                "endpoints=_endpoints(request.listeners),",
            ),
        ),
        harm="a controller that joins by itself waits for a commit that needs its own Fetch",
        tests=(f"{_TESTS}/test_raft_wire.py",),
    ),
    Mistake(
        name="any client that may describe the cluster votes",
        file=f"{_SERVER}/authorization.py",
        edits=(("ApiKey.VOTE: AclOperation.CLUSTER_ACTION,", "ApiKey.VOTE: AclOperation.DESCRIBE,"),),
        harm="a client changes the epoch of the quorum",
        tests=(f"{_TESTS}/test_operations_of_kafka.py",),
    ),
    Mistake(
        name="UnregisterBroker needs no more than a broker has",
        file=f"{_SERVER}/authorization.py",
        edits=(
            (
                "ApiKey.UNREGISTER_BROKER: AclOperation.ALTER,",
                "ApiKey.UNREGISTER_BROKER: AclOperation.CLUSTER_ACTION,",
            ),
        ),
        harm="each broker can take out the others",
        tests=(f"{_TESTS}/test_operations_of_kafka.py",),
    ),
    Mistake(
        name="an idle connection saves up time",
        file=f"{_CONTROLLER}/scheduler.py",
        edits=(
            (
                "max(work.account.get(service_class, 0.0), self._spent_s[service_class])",
                "work.account.get(service_class, 0.0)",
            ),
        ),
        harm="a connection that was idle for an hour is served alone for a long time",
        tests=("unit/controller/test_scheduler.py",),
    ),
    Mistake(
        name="heartbeats share the limit of clients",
        file=f"{_CONTROLLER}/scheduler.py",
        edits=(
            (
                "while waiting and (is_of_node or self._passed_on < self._requests_max):",
                "while waiting and self._passed_on < self._requests_max:",
            ),
        ),
        harm="clients that ask much delay heartbeats, so that brokers are fenced",
        tests=("unit/controller/test_scheduler.py",),
    ),
    Mistake(
        name="the request that lacks least gives way, too",
        file=f"{_SERVER}/connection_memory.py",
        edits=(("            if place is not lacks_least\n", ""),),
        harm="with one large request and little memory nobody is ever served",
        tests=(f"{_TESTS}/test_request_memory.py",),
    ),
    Mistake(
        name="each byte counts",
        file=f"{_SERVER}/connection_memory.py",
        edits=(("        size_bytes -= UNCOUNTED_REQUEST_BYTES_MAX\n", ""),),
        harm="heartbeats wait for the memory of strangers",
        tests=("unit/controller/server/test_request_memory.py",),
    ),
    Mistake(
        name="a slow request saves up credit",
        file=f"{_SERVER}/connection_memory.py",
        edits=(
            (
                "self.due_s = min(latest_s, self.due_s + size_bytes / LEAST_BYTES_PER_S)",
                "self.due_s = self.due_s + size_bytes / LEAST_BYTES_PER_S",
            ),
        ),
        harm="a connection that has sent a lot may stop for hours",
        tests=(f"{_TESTS}/test_request_memory.py",),
    ),
    Mistake(
        name="a pause counts for the time of a request",
        file=f"{_SERVER}/connection_memory.py",
        edits=(
            (
                "            self._credit_s, self.due_s = self.due_s - now_s, None\n",
                "            self._credit_s = self.due_s - now_s\n",
            ),
        ),
        harm="connections that wait for memory are closed",
        tests=("unit/controller/server/test_request_memory.py",),
    ),
    Mistake(
        name="announced bytes count as if they were there",
        file=f"{_SERVER}/request_intake.py",
        edits=(
            (
                "        held_bytes = self.size_bytes + buffered_bytes\n",
                "        held_bytes = self.size_bytes + max(buffered_bytes, size_bytes)\n",
            ),
            (
                "self.is_counted or self.size_bytes + buffered_bytes > UNCOUNTED_REQUEST_BYTES_MAX",
                "True",
            ),
        ),
        harm="connections that announce requests and send nothing hold up all others",
        tests=(f"{_TESTS}/test_request_memory.py",),
    ),
    Mistake(
        name="nobody gives way when memory is used up",
        file=f"{_SERVER}/connection_memory.py",
        edits=(("                self._make_room(service_class)\n", ""),),
        harm="requests that are never finished hold up others until they are closed for their rate",
        tests=(f"{_TESTS}/test_request_memory.py",),
    ),
    Mistake(
        name="strangers have the budget of clients",
        file=f"{_SERVER}/connection.py",
        edits=(
            (
                "        return class_of(key) if self._is_known else ServiceClass.STRANGERS\n",
                "        return class_of(key)\n",
            ),
        ),
        harm="strangers use up the memory and the time of clients and nodes",
        tests=(f"{_TESTS}/test_request_memory.py",),
    ),
    Mistake(
        name="short arrays are not counted",
        file="protocol/quorate_protocol/wire/codec/generated_readers.py",
        edits=(("0 <= count < 127 and data.__class__ is bytes and count", "0 <= count < 127 and count"),),
        harm="a request takes a hundred times the memory that its elements may take",
        tests=("property/test_codec_functions.py::test_elements_of_all_arrays_are_counted",),
    ),
    Mistake(
        name="classes are served in any order",
        file="controller_node/quorate_controller/scheduler.py",
        edits=(
            (
                "for service_class, waiting in self._waiting.items():",
                "for service_class, waiting in reversed(self._waiting.items()):",
            ),
        ),
        harm="fetches and heartbeats wait for clients and strangers",
        tests=("unit/controller/test_scheduler.py",),
    ),
    Mistake(
        name="clients pass on as many requests as they like",
        file="controller_node/quorate_controller/driver.py",
        edits=(("            self.scheduler.passed_on()\n", "            pass\n"),),
        harm="a turn takes seconds, and the leader loses its leadership",
        tests=("unit/controller/test_driver.py",),
    ),
    Mistake(
        name="a TLS handshake begins when a connection is accepted",
        file=f"{_SERVER}/listener.py",
        edits=(("                await self._first_byte(accepted)\n", ""),),
        harm="newcomers wait for thousands of silent connections",
        tests=(f"{_TESTS}/test_tls.py",),
    ),
    Mistake(
        name="a forwarded client has authenticated by itself",
        file=f"{_SERVER}/envelope.py",
        edits=(("        token_authenticated=principal.token_authenticated,\n", ""),),
        harm="a client with a delegation token creates further ones",
        tests=("unit/controller/server/test_envelope.py",),
    ),
    Mistake(
        name="any request is forwarded",
        file=f"{_SERVER}/envelope.py",
        edits=(("if api is not None and not api.is_forwardable:", "if api is None:"),),
        harm="a forwarded request gets the rights of its forwarder's connection",
        tests=("unit/controller/server/test_envelope.py",),
    ),
    Mistake(
        name="the first endpoint is the leader's",
        file=f"{_SERVER}/raft_wire/responses.py",
        edits=(("            if node.node_id == leader_id\n", ""),),
        harm="followers fetch from a node that does not lead",
        tests=("unit/controller/server/test_raft_wire.py",),
    ),
    Mistake(
        name="a timeout of 0 hides what is refused",
        file=f"{_SERVER}/error_responses.py",
        edits=(("    if entity.error_code is not ErrorCode.none:\n        return entity\n", ""),),
        harm="a client takes an invalid topic for one that is being created (KIP-4)",
        tests=("unit/controller/server/test_dispatch.py",),
    ),
    Mistake(
        name="an ended connection keeps its transport",
        file="controller_node/quorate_controller/server/connection.py",
        edits=(("        self._transport = ENDED\n", ""),),
        harm="256 KiB of each connection with TLS stay until the next full garbage collection",
        tests=("unit/controller/server/test_ended_connections.py",),
    ),
    Mistake(
        name="an ended connection keeps its place",
        file="controller_node/quorate_controller/server/connection_quotas.py",
        edits=(
            (
                "        place.close = _nothing  # it refers to the connection, and the connection to its place\n",
                "",
            ),
        ),
        harm="as above, without TLS",
        tests=("unit/controller/server/test_ended_connections.py",),
    ),
)

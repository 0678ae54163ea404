"""Mistakes in decisions about brokers, partitions and tokens."""

from __future__ import annotations

from typing import Final

from kit.planted_mistakes.mistake import Mistake

_CONTROL: Final = "controller_node/quorate_controller/control"
_TESTS: Final = "unit/controller/control"

MISTAKES: Final = (
    Mistake(
        name="a departure is remembered after the broker has returned",
        file=f"{_CONTROL}/broker_transitions.py",
        edits=(("        self._departed.pop(broker_id, None)\n", ""),),
        harm="a broker that departs a second time keeps all its ISRs, and leads for ever",
        shape="slices",
        tests=(f"{_TESTS}/test_control_second_departures.py",),
    ),
    Mistake(
        name="departures are remembered beyond the leadership",
        file=f"{_CONTROL}/broker_transitions.py",
        edits=(("        self._departed.clear()\n", ""),),
        harm="as above, if the broker returned under another leader",
        shape="slices",
        tests=(f"{_TESTS}/test_control_second_departures.py",),
    ),
    Mistake(
        name="lost directories are remembered beyond the leadership",
        file=f"{_CONTROL}/broker_transitions.py",
        edits=(("        self._losses.clear()\n", ""),),
        harm="slices take a broker out of partitions that are in good directories meanwhile",
        shape="slices",
        tests=("unit/controller/node/test_soft_state.py",),
    ),
    Mistake(
        name="a pass over leaderless partitions is remembered beyond the leadership",
        file=f"{_CONTROL}/broker_transitions.py",
        edits=(
            (
                "        self._leaderless = None\n        self._seek_again = False\n",
                "        self._seek_again = False\n",
            ),
        ),
        harm="a new leadership goes on with a cursor into an image that was reverted",
        shape="slices",
        tests=("unit/controller/node/test_soft_state.py",),
    ),
    Mistake(
        name="election passes are remembered beyond the leadership",
        file=f"{_CONTROL}/elections.py",
        edits=(("        self._passes.clear()\n", '        """"""\n'),),
        harm="the first pass of a new leadership begins in the middle",
        shape="partitions",
        tests=("unit/controller/node/test_soft_state.py",),
    ),
    Mistake(
        name="sessions are remembered beyond the leadership",
        file=f"{_CONTROL}/heartbeats.py",
        edits=(
            (
                "        self._leases.clear()\n        self._contacts.clear()\n",
                "        self._leases.clear()\n",
            ),
        ),
        harm="a new leadership fences brokers whose heartbeats went to the leader between",
        shape="partitions",
        tests=("unit/controller/node/test_soft_state.py",),
    ),
    Mistake(
        name="a broker counts as caught up with its former registration",
        file=f"{_CONTROL}/heartbeats.py",
        edits=(("                    lease.registration_offset = offset\n", "                    pass\n"),),
        harm="a broker is unfenced before it has read its new registration",
        shape="partitions",
        tests=(f"{_TESTS}/test_control_heartbeats.py",),
    ),
    Mistake(
        name="a session ends a millisecond early for a second registration",
        file=f"{_CONTROL}/heartbeats.py",
        edits=(
            (
                "now_ms <= contact_ms + self._session_timeout_ms",
                "now_ms < contact_ms + self._session_timeout_ms",
            ),
        ),
        harm="two incarnations of a broker run at once",
        shape="partitions",
        tests=(f"{_TESTS}/test_control_narrow_margins.py",),
    ),
    Mistake(
        name="a broker returns while slices take it out",
        file=f"{_CONTROL}/heartbeats.py",
        edits=(
            (
                "is_caught_up and not is_departing and not request.want_fence",
                "is_caught_up and not request.want_fence",
            ),
        ),
        harm="slices take an active broker out of ISRs, or its departure ends half done",
        shape="slices",
        tests=(f"{_TESTS}/test_control_broker_transitions.py",),
    ),
    Mistake(
        name="a shutdown waits for the first of its moves only",
        file=f"{_CONTROL}/heartbeats.py",
        edits=(("context.next_offset + len(records) - 1", "context.next_offset"),),
        harm="a broker stops while others still take it for a leader",
        shape="partitions",
        tests=(f"{_TESTS}/test_control_heartbeats.py",),
    ),
    Mistake(
        name="a shutdown waits for brokers that shut down",
        file=f"{_CONTROL}/heartbeats.py",
        edits=(
            (
                "if not brokers[broker_id].fenced and not lease.is_shutting_down",
                "if not brokers[broker_id].fenced",
            ),
        ),
        harm="two brokers that shut down at once wait for each other",
        shape="slices",
        tests=(f"{_TESTS}/test_control_broker_transitions.py",),
    ),
    Mistake(
        name="ELR kept with exactly min.insync.replicas in sync",
        file=f"{_CONTROL}/partition_change.py",
        edits=(("if len(target.isr) >= min_insync_replicas:", "if len(target.isr) > min_insync_replicas:"),),
        harm="a replica is eligible that misses acknowledged records (KIP-966)",
        shape="partitions",
        tests=(f"{_TESTS}/replication/test_elections_brokers.py",),
    ),
    Mistake(
        name="an unclean copy stays in the ELR",
        file=f"{_CONTROL}/partition_change.py",
        edits=(("sorted(replica for replica in eligible if replica != lost_replica)", "sorted(eligible)"),),
        harm="a replica that lost records is elected as a clean leader (KIP-966)",
        shape="partitions",
        tests=(f"{_TESTS}/replication/test_elections_brokers.py",),
    ),
    Mistake(
        name="min.insync.replicas above the replication factor",
        file=f"{_CONTROL}/partition_change.py",
        edits=(
            (
                "min(self._configs.min_insync_replicas(topic.name), replication_factor)",
                "self._configs.min_insync_replicas(topic.name)",
            ),
        ),
        harm="replicas stay in the ELR although all are in sync",
        shape="partitions",
        tests=(f"{_TESTS}/test_control_narrow_margins.py",),
    ),
    Mistake(
        name="a broker in controlled shutdown joins an ISR",
        file=f"{_CONTROL}/partitions.py",
        edits=(
            (
                "if broker is None or not broker.is_active:\n            return False",
                "if broker is None or broker.fenced:\n            return False",
            ),
        ),
        harm="a broker stops as a member of ISRs (KIP-841)",
        shape="partitions",
        tests=(f"{_TESTS}/replication/test_partitions_alter.py",),
    ),
    Mistake(
        name="an AlterPartition of an older partition epoch",
        file=f"{_CONTROL}/partitions.py",
        edits=(
            (
                "if asked.partition_epoch < partition.partition_epoch:",
                "if asked.partition_epoch < 0:",
            ),
        ),
        harm="a broker that has not read a reassignment undoes it",
        shape="partitions",
        tests=(f"{_TESTS}/replication/test_partitions_alter.py",),
    ),
    Mistake(
        name="any previous epoch proves a clean shutdown",
        file=f"{_CONTROL}/node_registrations.py",
        edits=(
            ("and existing.epoch == request.previous_broker_epoch", "and request.previous_broker_epoch >= 0"),
        ),
        harm="a copy that lost records stays eligible (KIP-966)",
        shape="partitions",
        tests=(f"{_TESTS}/test_control_broker_registration.py",),
    ),
    Mistake(
        name="a pass over many partitions pauses for its interval after each step",
        file=f"{_CONTROL}/controller.py",
        edits=(("(STEP_PAUSE_MS if has_more else task.interval_ms)", "task.interval_ms"),),
        harm="a balance of 100,000 leaders takes days",
        shape="partitions",
        tests=(f"{_TESTS}/test_control_delegation_tokens.py",),
    ),
    Mistake(
        name="a token is renewed beyond its life",
        file=f"{_CONTROL}/delegation_tokens.py",
        edits=(("expiry_ms = min(token.max_timestamp_ms, wanted_ms)", "expiry_ms = wanted_ms"),),
        harm="a token outlives max.lifetime.ms",
        shape="partitions",
        tests=(f"{_TESTS}/test_control_delegation_tokens.py",),
    ),
    Mistake(
        name="a reassignment ends before the replicas that stay are in sync",
        file=f"{_CONTROL}/partition_change.py",
        edits=(
            ("needed = (*adding, *replicas) if len(adding) < len(removing) else adding", "needed = adding"),
        ),
        harm="a reassignment to fewer replicas thins out the ISR",
        shape="partitions",
        tests=(f"{_TESTS}/test_control_narrow_margins.py",),
    ),
    Mistake(
        name="bootstrap metadata judged by an aborted transaction",
        file=f"{_CONTROL}/controller.py",
        edits=(
            (
                "image.committed_copy().metadata_version if aborts else image.metadata_version",
                "image.metadata_version",
            ),
        ),
        harm="a cluster whose first leader died in its bootstrap has no metadata.version",
        shape="partitions",
        tests=(f"{_TESTS}/test_control_activation.py",),
    ),
    Mistake(
        name="a request that is too large is counted while it is written",
        file=f"{_CONTROL}/steps.py",
        edits=(("return cls(is_dry=True, is_checked=True)", "return cls(is_checked=True)"),),
        harm="a request that is refused as a whole leaves thousands of records behind",
        shape="partitions",
        tests=(f"{_TESTS}/test_control_acls.py",),
    ),
    Mistake(
        name="brokers are read once for all topics",
        file=f"{_CONTROL}/assignments.py",
        edits=(("if self._placer is None or self._read != read:", "if self._placer is None:"),),
        harm="partitions are placed on brokers that are gone",
        shape="partitions",
        tests=(f"{_TESTS}/replication/test_placement.py",),
    ),
    Mistake(
        name="a broker's new epoch does not end its report of the one before",
        file=f"{_CONTROL}/partitions.py",
        edits=(
            (
                (
                    "        check_broker_epoch(self._image, broker_id, broker_epoch)\n"
                    "        return PartitionChanges"
                ),
                "        return PartitionChanges",
            ),
        ),
        harm="an ISR has a replica whose copy is from before a crash",
        shape="partitions",
        tests=(f"{_TESTS}/replication/test_partitions_alter.py",),
    ),
    Mistake(
        name="a budget that never refills",
        file=f"{_CONTROL}/steps.py",
        edits=(("        self._left = STEP_WORK_MAX\n        return True\n", "        return True\n"),),
        harm="each record of a large decision takes a turn of its own",
        shape="partitions",
        tests=(f"{_TESTS}/test_control_step_budget.py",),
    ),
    Mistake(
        name="parts that repeat the records before them",
        file=f"{_CONTROL}/steps.py",
        edits=(("records, self._records = tuple(self._records), []", "records = tuple(self._records)"),),
        harm="records are written again with each part: a topic cannot be created twice",
        shape="partitions",
        tests=(f"{_TESTS}/test_control_step_budget.py",),
    ),
    Mistake(
        name="a dry run that writes",
        file=f"{_CONTROL}/steps.py",
        edits=(
            (
                "        if not self._is_dry:\n            self._records += records\n",
                "        self._records += records\n",
            ),
        ),
        harm="validate_only writes, and each record of a checked decision is written twice",
        shape="partitions",
        tests=(f"{_TESTS}/replication/test_topics_create.py",),
    ),
    Mistake(
        name="an abandoned metadata transaction stays open",
        file=f"{_CONTROL}/controller.py",
        edits=(("[AbortTransactionRecord(reason=ABORT_REASON)] if aborts else []", "[]"),),
        harm="brokers never see what the new leader writes",
        tests=("unit/controller/control/test_control_activation.py",),
    ),
    Mistake(
        name="a token for whoever reaches a controller",
        file=f"{_CONTROL}/delegation_tokens.py",
        edits=(("return context.forwarded or protocol.is_sasl or has_certificate", "return True"),),
        harm="clients that have not authenticated get tokens of User:ANONYMOUS",
        tests=(f"{_TESTS}/test_control_delegation_tokens.py",),
    ),
    Mistake(
        name="all tokens are shown to everybody",
        file=f"{_CONTROL}/describe_security.py",
        edits=(("                if _is_visible(token, context):\n", "                if True:\n"),),
        harm="anybody logs in with the tokens of others, whose HMACs are in the response",
        tests=(f"{_TESTS}/test_control_reads.py",),
    ),
    Mistake(
        name="a page of topics of any size",
        file=f"{_CONTROL}/describe_topics.py",
        edits=(
            (
                "left = max(1, min(PARTITIONS_MAX, request.response_partition_limit))",
                "left = max(1, request.response_partition_limit)",
            ),
        ),
        harm="one response describes all partitions of the cluster",
        tests=(f"{_TESTS}/test_control_reads.py",),
    ),
    Mistake(
        name="topics are described without a look at ACLs",
        file=f"{_CONTROL}/describe_topics.py",
        edits=(
            (
                "if not access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):",
                "if False:",
            ),
        ),
        harm="the names of all topics are disclosed",
        tests=(f"{_TESTS}/test_control_reads.py",),
    ),
    Mistake(
        name="sessions are those of a transaction that is aborted",
        file=f"{_CONTROL}/controller.py",
        edits=(
            (
                "if any(isinstance(record, AbortTransactionRecord) for record in records):",
                "if False:",
            ),
        ),
        harm="a broker that the transaction had fenced is never fenced, however long it is silent",
        shape="partitions",
        tests=(f"{_TESTS}/test_control_activation.py",),
    ),
    Mistake(
        name="the ELR of partitions without an ISR is cleared, too",
        file=f"{_CONTROL}/broker_transitions.py",
        edits=(("for name in topic_names), *kept]", "for name in topic_names)]"),),
        harm="only an unclean election gives these partitions a leader",
        shape="partitions",
        tests=(f"{_TESTS}/replication/test_elections_brokers.py",),
    ),
    Mistake(
        name="ELRs outlive the feature",
        file=f"{_CONTROL}/controller.py",
        edits=(("if changes_elr_level(part.records):", "if False:"),),
        harm="a replica is elected that lacks what was acknowledged while the feature was off",
        shape="partitions",
        tests=(f"{_TESTS}/test_control_features.py",),
    ),
    Mistake(
        name="the last eligible replica is forgotten",
        file=f"{_CONTROL}/partition_change.py",
        edits=(("    return (partition.isr or partition.elr)[:1] or None\n", "    return None\n"),),
        harm="the partition never has a leader again, although its last replica returns",
        shape="partitions",
        tests=(f"{_TESTS}/replication/test_elections_brokers.py",),
    ),
    Mistake(
        name="the ELR ends with the feature, also where there is no ISR",
        file=f"{_CONTROL}/partition_change.py",
        edits=(("target.elr = () if target.isr else target.elr", "target.elr = ()"),),
        harm="as above",
        shape="partitions",
        tests=(f"{_TESTS}/replication/test_elections_brokers.py",),
    ),
)

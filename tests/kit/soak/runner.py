"""Runs a soak: the cluster, the load, the faults, the calm at the end, and the verdict."""

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import KafkaException
from kit.ledger import consume_numbers
from kit.metadata import assert_same_images, assert_snapshots_hold
from kit.soak.breaking import RECOVERY_TIMEOUT_S, VOTERS_TIMEOUT_S, Breaker
from kit.soak.checker import CONFIG, TOPIC, Violation, check
from kit.soak.history import Event, Recorder, What, ranges
from kit.soak.load import PARTITIONS, RECORDS, Administrators, PartitionProducer, make_topics
from kit.soak.nodes import LIBFAKETIME, SoakCluster
from kit.soak.observer import Observer
from kit.soak.schedule import Fault, Kind, draw
from kit.soak.trouble import Trouble
from quorate_protocol.image.state import ImageState
from quorate_protocol.kafka.enums import ConfigResourceType
from quorate_protocol.uuids import uuid_to_text

FAULTS_AT_ONCE_MAX = 8
POLL_EVERY_S = 0.25
IDLE_S = 10.0
"""The time for which the processors of idle nodes are measured."""
SETTLE_S = 5.0
"""What was answered to clients that ended is forgotten by then: idle nodes are to be measured."""
PROGRESS_EVERY_S = 60.0
REPORTS = Path("test-reports/soak")
_PYTHON_ACTIVE = re.compile(r" active epoch=(\d+) ")
_JAVA_LEADER = re.compile(r"Completed transition to Leader(?:State)?\(.*?epoch=(\d+)")
_COMPLAINT = re.compile(r"Traceback \(most recent call last\)|decision_failed")


@dataclass(frozen=True, slots=True)
class SoakResult:
    """What a soak found, and where its history is kept."""

    events: Sequence[Event]
    violations: Sequence[Violation]
    kept: Path


def soak(
    seed: int, minutes: float, jars: Path, say: Callable[[str], None], *, mistake: str = ""
) -> SoakResult:
    """Run a soak, or one whose Python controllers make a mistake. Needs root, `ip`, `iptables`, `tc` and `strace`.

    Nothing of it is left behind but its history.
    """
    kept = REPORTS / str(seed)
    shutil.rmtree(kept, ignore_errors=True)
    recorder = Recorder(kept / "history.jsonl")
    scratch = Path(tempfile.mkdtemp(prefix="quorate-soak-"))
    try:
        with SoakCluster.made(scratch / "cluster", jars, mistake=mistake) as cluster:
            try:
                _Soak(cluster, recorder, say).run(seed, minutes)
            finally:
                _copy_logs(cluster, kept)
    finally:
        recorder.close()
        shutil.rmtree(scratch, ignore_errors=True)
    violations = check(recorder.events)
    if not violations:
        shutil.rmtree(kept / "logs", ignore_errors=True)
    return SoakResult(recorder.events, violations, kept)


def missing_parts() -> list[str]:
    """What this machine lacks for a soak: commands by name, with Debian's packages."""
    packages = {"ip": "iproute2", "tc": "iproute2", "iptables": "iptables", "strace": "strace"}
    return [f"{name} ({package})" for name, package in packages.items() if shutil.which(name) is None]


class _Soak:
    def __init__(self, cluster: SoakCluster, recorder: Recorder, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._say = say
        self._begun: list[Future[None]] = []

    def run(self, seed: int, minutes: float) -> None:
        cluster = self._cluster
        self._report_environment()
        cluster.start_founders()
        make_topics(cluster)
        self._recorder.note(
            What.RUN,
            seed=seed,
            minutes=minutes,
            netem=cluster.network.has_netem,
            faketime=LIBFAKETIME is not None,
            controllers={
                controller: cluster.implementation(controller) for controller in cluster.controllers
            },
        )
        # Nodes die with the thread that started them: those of the pool live until the cluster is closed.
        with ExitStack() as stack:
            observer = stack.enter_context(Observer(cluster, self._recorder))
            pool = ThreadPoolExecutor(FAULTS_AT_ONCE_MAX, thread_name_prefix="fault")
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            trouble = Trouble(cluster, observer)
            breaker = Breaker(cluster, observer, trouble, self._recorder)
            with ExitStack() as load:
                load.enter_context(Administrators(cluster, self._recorder, observer, seed))
                for partition in range(PARTITIONS):
                    load.enter_context(PartitionProducer(cluster, self._recorder, partition))
                self._break(seed, minutes * 60, breaker, trouble, pool)
                self._say("no more faults; waiting until all is well")
                self._calm(breaker)
            time.sleep(SETTLE_S)
            self._judge_resources()
            self._consume()
            self._compare()
            self._read_logs()
            cluster.close()

    def _report_environment(self) -> None:
        self._say(f"the nodes are in the namespaces {self._cluster.network.tag}-1 and so on")
        if not self._cluster.network.has_netem:
            self._say("the kernel has no sch_netem: slow links (sch_tbf) take the place of delays")
        if LIBFAKETIME is None:
            self._say("libfaketime is missing (Debian's package faketime): no clock is set")

    # Faults

    def _break(
        self, seed: int, duration_s: float, breaker: Breaker, trouble: Trouble, pool: ThreadPoolExecutor
    ) -> None:
        begun_s = self._recorder.now_s()
        reported_s = begun_s
        for fault in draw(seed, duration_s, self._cluster.controllers, self._cluster.brokers):
            while (now_s := self._recorder.now_s()) < begun_s + fault.due_s:
                self._check_ended(breaker, trouble)
                time.sleep(POLL_EVERY_S)
            if now_s > begun_s + duration_s:
                break
            if now_s > reported_s + PROGRESS_EVERY_S:
                reported_s = now_s
                self._report_progress(fault)
            can_be = fault.kind is not Kind.CLOCK or LIBFAKETIME is not None
            nodes = trouble.acquire(fault) if can_be else "libfaketime is missing"
            if isinstance(nodes, str):
                self._recorder.note(What.REFUSED, number=fault.number, kind=fault.kind, reason=nodes)
                continue
            self._begun.append(pool.submit(breaker.carry_out, fault, nodes))

    def _check_ended(self, breaker: Breaker, trouble: Trouble) -> None:
        """Report nodes that ended though no fault holds them."""
        nodes = (*self._cluster.controllers, *self._cluster.brokers)
        ended = [node for node in nodes if not self._cluster.runs(node)]
        for node_id in ended:
            # Asked last: a fault gives a node back when it runs.
            if node_id not in trouble.held():
                breaker.check_ended(node_id)

    def _report_progress(self, fault: Fault) -> None:
        broken = sum(event.what is What.BROKEN for event in self._recorder.events)
        self._say(f"{fault.due_s / 60:.0f} minutes, {fault.number} faults drawn, {broken} violations so far")

    def _calm(self, breaker: Breaker) -> None:
        """Wait until the faults are over and every node is well."""
        done, late = wait(self._begun, RECOVERY_TIMEOUT_S + 2 * VOTERS_TIMEOUT_S)
        for error in filter(None, (future.exception() for future in done)):
            self._recorder.note(What.BROKEN, rule="a fault could not be carried out", text=repr(error))
        if late:
            self._recorder.note(What.BROKEN, rule="a fault does not end", text=f"{len(late)} of them")
        for node_id in (*self._cluster.controllers, *self._cluster.brokers):
            breaker.check_ended(node_id)
        try:
            self._cluster.await_quorum(*self._cluster.controllers)
            self._cluster.await_unfenced(*self._cluster.brokers)
        except AssertionError as error:
            self._recorder.note(What.BROKEN, rule="not well at the end", text=str(error))
        self._recorder.note(What.CALM)

    # The end

    def _judge_resources(self) -> None:
        running = [
            python_controller
            for python_controller in self._cluster.python_controllers
            if self._cluster.runs(python_controller)
        ]
        processes = {node_id: psutil.Process(self._cluster.pid(node_id)) for node_id in running}
        before = {node_id: sum(process.cpu_times()[:2]) for node_id, process in processes.items()}
        time.sleep(IDLE_S)
        for node_id, process in processes.items():
            share = (sum(process.cpu_times()[:2]) - before[node_id]) / IDLE_S
            memory_mb = process.memory_info().rss / 2**20
            self._recorder.note(
                What.RESOURCES, node=node_id, cpu_share=round(share, 3), memory_mb=round(memory_mb, 1)
            )

    def _consume(self) -> None:
        for partition in range(PARTITIONS):
            try:
                numbers = consume_numbers(self._cluster.bootstrap_servers, RECORDS, [partition])
            except (AssertionError, KafkaException) as error:
                self._recorder.note(What.BROKEN, rule="records can't be read", text=repr(error))
                continue
            self._recorder.note(What.CONSUMED, partition=partition, ranges=ranges(numbers))

    def _compare(self) -> None:
        """All controllers have the same batches and lead to the same image, which is what is there at the end."""
        with self._cluster.frozen():
            partitions = [self._cluster.metadata(controller) for controller in self._cluster.controllers]
            try:
                image = assert_same_images(partitions)
                self._recorder.note(What.FINAL, **{TOPIC: _topics(image), CONFIG: _configs(image)})
                assert_snapshots_hold(partitions)
            except Exception as error:  # a log that was left broken can be anything
                self._recorder.note(What.BROKEN, rule="images differ", text=repr(error)[:4000])

    def _read_logs(self) -> None:
        for node_id in self._cluster.controllers:
            is_python = node_id in self._cluster.python_controllers
            text = self._cluster.log_of(node_id)
            for found in (_PYTHON_ACTIVE if is_python else _JAVA_LEADER).finditer(text):
                self._recorder.note(What.LEADER, leader=node_id, epoch=int(found[1]))
            complaint = _COMPLAINT.search(text) if is_python else None
            if complaint:
                around = text[max(0, complaint.start() - 300) : complaint.end() + 2000]
                self._recorder.note(What.BROKEN, rule="an exception in a log", text=f"{node_id}: {around}")


def _topics(image: ImageState) -> dict[str, str]:
    return {name: uuid_to_text(topic.topic_id) for name, topic in image.topics.by_name.items()}


def _configs(image: ImageState) -> dict[str, str]:
    return {
        f"{topic}/{name}": value
        for (kind, topic), values in image.configs.items()
        if kind == ConfigResourceType.TOPIC.value
        for name, value in values.items()
    }


def _copy_logs(cluster: SoakCluster, kept: Path) -> None:
    logs = kept / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    for node_id in (*cluster.controllers, *cluster.brokers):
        with suppress(FileNotFoundError):  # it was not started yet
            (logs / f"{node_id}.log").write_text(cluster.log_of(node_id))

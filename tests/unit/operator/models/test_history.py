"""What a manifest says of a history: what is taken, and what is refused with the field and what is allowed."""

import pytest
from kit.desired_cluster import manifest_fault
from quorate_operator.models.manifests import load_manifests
from quorate_operator.models.v1alpha1 import KafkaController

MANIFEST = "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\nmetadata: {name: quorum}\nspec: {%s}\n"


def controllers(spec: str) -> KafkaController:
    """The quorum of a manifest that must be accepted."""
    return load_manifests(MANIFEST % spec, "m.yaml").controllers


def fault_of(history: str, more: str = "") -> str:
    """The message about a history that must be refused."""
    return manifest_fault(MANIFEST % f"history: {{{history}}}{more}")


def test_it_is_off_by_default() -> None:
    """Nothing is shipped without a history; with a volume alone, the rest has defaults."""
    assert controllers("").spec.history is None
    history = controllers("history: {storage: {size: 20Gi}}").spec.history
    assert history is not None
    assert history.storage is not None
    assert (history.storage.access_mode, history.schedule) == ("ReadWriteMany", "17 * * * *")
    assert (history.segment_interval, history.lake, history.suspend) == ("1h", "lake", False)


@pytest.mark.parametrize("history", ["", "storage: {size: 1Gi}, claimName: other", "schedule: '@daily'"])
def test_it_has_one_volume(history: str) -> None:
    assert "spec.history.must have either storage" in fault_of(history) or (
        "must have either storage, for a new volume, or claimName" in fault_of(history)
    )


@pytest.mark.parametrize(
    "schedule",
    [
        "0 * * * *",
        "*/15 * * * *",
        "5,35 0-6/2 1 JAN-MAR mon",
        "0 0 ? * 0",
        "@hourly",
        "@daily",
        "59 23 31 12 6",
        "5/10 * * * SUN-SAT/2",
        "0 0 31 2 *",
    ],
)
def test_schedules_are_those_of_a_cron_job(schedule: str) -> None:
    """Kubernetes' own notation."""
    history = controllers(f"history: {{claimName: c, schedule: '{schedule}'}}").spec.history
    assert history is not None
    assert history.schedule == schedule


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("60 * * * *", "minute: '60': must be *, or numbers from 0 to 59"),
        ("0 24 * * *", "hour: '24'"),
        ("0 0 0 * *", "day of month: '0': must be *, or numbers from 1 to 31"),
        ("0 0 * 13 *", "month: '13'"),
        ("0 0 * * 7", "day of week: '7': must be *, or numbers from 0 to 6"),
        ("30-10 * * * *", "minute: '30-10'"),
        ("*/0 * * * *", "minute: '*/0'"),
        ("0 1-5-7 * * *", "hour: '1-5-7'"),
        ("0 0 * * 1,5-7", "day of week: '1,5-7'"),
        ("0 0 * * 07", "day of week: '07'"),
        ("0 0 * * 5L", "day of week: '5L': must be *, or numbers from 0 to 6"),
        ("0 0 L * *", "must match pattern"),
        ("0 0 * * 1#2", "must match pattern"),
        ("TZ=UTC 0 * * *", "must match pattern"),
        ("0 0 * JANUARY *", "month: 'JANUARY': must be *, or numbers from 1 to 12"),
        ("0 0 * FOO *", "month: 'FOO'"),
        ("@never", "must be five fields"),
        ("0 * * *", "must match pattern"),
        ("0 * * * * *", "must match pattern"),
        ("", "must match pattern"),
    ],
)
def test_a_schedule_that_kubernetes_would_refuse_later_is_refused_at_once(schedule: str, words: str) -> None:
    message = fault_of(f"claimName: c, schedule: '{schedule}'")
    assert "spec.history.schedule" in message
    assert words in message


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ("claimName: c, segmentInterval: 59s", "spec.history.segmentInterval: '59s': must be 1m or more"),
        ("claimName: c, segmentInterval: often", "must be a number and a unit"),
        ("claimName: c, lake: shipped", "spec.history.lake: 'shipped': must not be in shipped"),
        ("claimName: c, lake: shipped/lake", "must not be in shipped"),
        ("claimName: c, lake: ../lake", "spec.history.lake: '../lake'"),
        ("claimName: c, lake: /lake", "spec.history.lake: '/lake'"),
        ("claimName: Upper", "spec.history.claimName: 'Upper'"),
        ("storage: {className: fast}", "spec.history.storage.size: missing"),
        ("storage: {size: 1Gi, accessMode: ReadWriteOncePod}", "'ReadWriteMany' or 'ReadWriteOnce'"),
        ("storage: {size: 1Gi}, retention: 7d", "spec.history.retention: unknown field"),
    ],
)
def test_what_can_not_be_is_refused_with_its_field(history: str, words: str) -> None:
    assert words in fault_of(history)


def test_a_volume_of_one_machine_is_for_controllers_on_one_machine() -> None:
    once = "storage: {size: 1Gi, accessMode: ReadWriteOnce}"
    assert (
        "spec.history.storage.accessMode: 'ReadWriteOnce': ReadWriteOnce is for controllers on one Kubernetes node"
        in (fault_of(once))
    )
    assert controllers(f"replicas: 1, history: {{{once}}}").spec.history
    pinned = "template: {nodeSelector: {kubernetes.io/hostname: m1}}"
    assert controllers(f"{pinned}, history: {{{once}}}").spec.history

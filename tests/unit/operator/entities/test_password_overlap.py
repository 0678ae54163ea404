"""A rotation with overlap: until its end both passwords are valid, afterwards the former one is not."""

from dataclasses import replace
from typing import Any

import pytest
from kit.kafka_model import kafka_of
from kit.user_model import UserModel
from quorate_operator.entities.plan import EntityPlan
from quorate_operator.entities.users import (
    OVERLAPS,
    SECRET_STALE,
    ObservedSecret,
    ObservedUser,
    StoredUser,
    plan_user,
)
from quorate_operator.models.manifests import ManifestError, load_entity
from quorate_operator.models.users import KafkaUser

FIRST, SECOND = "SCRAM-SHA-512", "SCRAM-SHA-256"
HOUR_MS = 3_600_000
START_MS = 1_800_000_000_000
PASSES_MAX = 6


def user(mechanism: str, **authentication: Any) -> KafkaUser:
    """One who logs in with this mechanism, and whose former password overlaps for an hour."""
    manifest = {
        "apiVersion": "quorate.dev/v1alpha1",
        "kind": "KafkaUser",
        "metadata": {"name": "alice", "namespace": "kafka", "uid": "u"},
        "spec": {
            "cluster": "quorum",
            "authentication": {"type": mechanism.lower(), "overlap": "1h", **authentication},
        },
    }
    loaded = load_entity(manifest, "namespace kafka")
    assert isinstance(loaded, KafkaUser)
    return loaded


class Rotation:
    """A user in a cluster, whose resource and Secret are edited while time passes."""

    def __init__(self) -> None:
        self.model = UserModel(ObservedUser())
        self.stored = StoredUser()
        self.now_ms = START_MS
        self.plan = EntityPlan()

    def give(self, password: str) -> None:
        """Have the resource name a Secret with this password."""
        secret = ObservedSecret(version=f"s/{password}", password=password, is_own=False, is_labelled=True)
        self.model.user = replace(self.model.user, secret=secret)

    def settle(self, mechanism: str, **authentication: Any) -> None:
        """Reconcile until nothing is due."""
        authentication.setdefault("secretName", "mine")
        for _ in range(PASSES_MAX):
            self.stored = self.model.stored(self.stored)
            self.model.set_version = None
            asked = user(mechanism, **authentication)
            self.plan = plan_user(
                asked, self.model.user, kafka_of([None]), stored=self.stored, now_ms=self.now_ms
            )
            self.stored = StoredUser.of_status(self.plan.status)
            if not self.plan.changes:
                return
            for change in self.plan.changes:
                self.model.apply(change)
        raise AssertionError(f"after {PASSES_MAX} passes: {self.plan.changes}")


@pytest.fixture
def rotated() -> Rotation:
    """A rotation in its overlap, which began at `START_MS`."""
    rotation = Rotation()
    rotation.give("old")
    rotation.settle(FIRST)
    assert rotation.plan.status["formerPassword"] is None
    rotation.give("new")
    rotation.settle(SECOND)
    return rotation


def test_the_former_password_is_valid_until_its_end(rotated: Rotation) -> None:
    assert rotated.model.passwords == {FIRST: "old", SECOND: "new"}
    status = rotated.plan.status
    assert (status["mechanism"], status["secretVersion"]) == (SECOND, "s/new")
    assert status["formerPassword"] == {
        "mechanism": FIRST,
        "secretVersion": "s/old",
        "replacedAt": "2027-01-15T08:00:00Z",
        "validUntil": "2027-01-15T09:00:00Z",
    }
    assert not rotated.plan.waits, "the user is ready meanwhile"
    rotated.now_ms = START_MS + HOUR_MS - 1
    rotated.settle(SECOND)
    assert rotated.model.passwords == {FIRST: "old", SECOND: "new"}
    rotated.now_ms = START_MS + HOUR_MS
    rotated.settle(SECOND)
    assert rotated.model.passwords == {SECOND: "new"}
    assert rotated.plan.status["formerPassword"] is None


def test_the_next_rotation_changes_the_mechanism_back(rotated: Rotation) -> None:
    """But not before the end: a mechanism has one password, and that one is promised to be valid."""
    rotated.give("newer")
    rotated.settle(FIRST)
    (refusal,) = rotated.plan.refusals
    assert refusal.code == OVERLAPS
    assert (
        "alice has one password for SCRAM-SHA-512, and the former one is valid until 2027-01-15T09:00:00Z"
        in (refusal.message)
    )
    assert rotated.model.passwords == {FIRST: "old", SECOND: "new"}
    assert rotated.plan.status["mechanism"] == SECOND
    rotated.now_ms += HOUR_MS
    rotated.settle(FIRST)
    assert rotated.model.passwords == {FIRST: "newer", SECOND: "new"}
    rotated.now_ms += HOUR_MS
    rotated.settle(FIRST)
    assert rotated.model.passwords == {FIRST: "newer"}


def test_a_rotation_can_be_taken_back(rotated: Rotation) -> None:
    """Clients that have the new password already are not cut off either."""
    rotated.now_ms += HOUR_MS // 2
    rotated.give("old")
    rotated.settle(FIRST)
    assert rotated.model.passwords == {FIRST: "old", SECOND: "new"}
    assert (rotated.plan.status["mechanism"], rotated.plan.status["secretVersion"]) == (FIRST, "s/old")
    assert rotated.plan.status["formerPassword"]["mechanism"] == SECOND
    rotated.now_ms += HOUR_MS
    rotated.settle(FIRST)
    assert rotated.model.passwords == {FIRST: "old"}


def test_without_overlap_the_former_password_ends_at_once(rotated: Rotation) -> None:
    """For instance because it was disclosed."""
    rotated.settle(SECOND, overlap=None)
    assert rotated.model.passwords == {SECOND: "new"}
    rotated.give("newer")
    rotated.settle(FIRST, overlap=None)
    assert rotated.model.passwords == {FIRST: "newer"}


def test_an_end_that_is_moved_holds(rotated: Rotation) -> None:
    rotated.now_ms += 2 * HOUR_MS
    rotated.settle(SECOND, overlap="3h")
    assert rotated.model.passwords == {FIRST: "old", SECOND: "new"}
    assert rotated.plan.status["formerPassword"]["validUntil"] == "2027-01-15T11:00:00Z"


def test_an_operator_that_dies_before_the_password_is_set_keeps_the_former_one() -> None:
    """The status is written before the change. The overlap begins when the password is set."""
    rotation = Rotation()
    rotation.give("old")
    rotation.settle(FIRST)
    rotation.give("new")
    asked = user(SECOND, secretName="mine")
    for _ in range(2):
        plan = plan_user(
            asked, rotation.model.user, kafka_of([None]), stored=rotation.stored, now_ms=rotation.now_ms
        )
        rotation.stored = StoredUser.of_status(plan.status)
        rotation.now_ms += HOUR_MS // 2
    rotation.settle(SECOND)
    assert rotation.model.passwords == {FIRST: "old", SECOND: "new"}
    rotation.now_ms += HOUR_MS // 2
    rotation.settle(SECOND)
    assert rotation.model.passwords == {FIRST: "old", SECOND: "new"}
    rotation.now_ms += HOUR_MS // 2
    rotation.settle(SECOND)
    assert rotation.model.passwords == {SECOND: "new"}


def test_a_secret_that_is_missing_ends_nothing(rotated: Rotation) -> None:
    rotated.model.user = replace(rotated.model.user, secret=None)
    rotated.settle(SECOND)
    assert rotated.plan.refusals
    assert rotated.model.passwords == {FIRST: "old", SECOND: "new"}


def test_a_secret_that_is_stale_does_not_keep_the_former_password(rotated: Rotation) -> None:
    rotated.model.user = replace(
        rotated.model.user,
        secret=ObservedSecret(version="s/new", password="new", is_own=True, has_other_login=True),
    )
    rotated.now_ms += HOUR_MS
    rotated.settle(SECOND, secretName=None)
    assert [refusal.code for refusal in rotated.plan.refusals] == [SECRET_STALE]
    assert rotated.model.passwords == {SECOND: "new"}


def test_one_secret_for_both_mechanisms_ends_the_former_one_too() -> None:
    rotation = Rotation()
    rotation.give("same")
    rotation.settle(FIRST)
    rotation.settle(SECOND)
    assert rotation.model.passwords == {FIRST: "same", SECOND: "same"}
    rotation.now_ms += HOUR_MS
    rotation.settle(SECOND)
    assert rotation.model.passwords == {SECOND: "same"}


def test_a_created_secret_of_another_name_has_another_password() -> None:
    rotation = Rotation()
    rotation.settle(FIRST, secretName=None)
    assert rotation.plan.status["secretName"] == "alice"
    rotation.model.user = replace(rotation.model.user, secret=None)  # the other name is not taken
    rotation.settle(SECOND, secretName=None, createdSecretName="alice-2")
    assert rotation.plan.status["secretName"] == "alice-2"
    assert rotation.model.passwords == {FIRST: "p1", SECOND: "p2"}


@pytest.mark.parametrize(
    ("authentication", "message"),
    [
        ({"type": "tls"}, "overlap and createdSecretName: are for scram-sha-512 and scram-sha-256"),
        ({"overlap": "30s"}, "overlap: '30s': must be 1m or more"),
        ({"secretName": "a", "createdSecretName": "b"}, "createdSecretName: is not allowed with secretName"),
    ],
)
def test_what_the_model_refuses(authentication: dict[str, str], message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        user(FIRST, **authentication)

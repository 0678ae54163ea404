"""How long a user's former password stays valid beside the current one. Pure.

Kafka has one SCRAM credential for each user and mechanism. So two passwords of a user are valid at the same time if
they are those of two mechanisms: a rotation with overlap changes the mechanism, and the next one changes it back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerPassword:
    """The credentials that the current ones replaced, with the version of the Secret that they came from."""

    mechanism: str
    secret_version: str | None
    replaced_at_ms: int

    @classmethod
    def of_status(cls, status: Mapping[str, Any]) -> Self | None:
        """Return what `as_status` has stored, or None."""
        former = status.get("formerPassword")
        if former is None:
            return None
        return cls(
            mechanism=former["mechanism"],
            secret_version=former.get("secretVersion"),
            replaced_at_ms=int(datetime.fromisoformat(former["replacedAt"]).timestamp() * 1000),
        )

    def as_status(self, overlap_ms: int) -> dict[str, Any]:
        return {
            "mechanism": self.mechanism,
            **({} if self.secret_version is None else {"secretVersion": self.secret_version}),
            "replacedAt": utc_text(self.replaced_at_ms),
            "validUntil": utc_text(self.ends_at_ms(overlap_ms)),
        }

    def ends_at_ms(self, overlap_ms: int) -> int:
        return self.replaced_at_ms + overlap_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Passwords:
    """The mechanism of the current password, the Secret that it came from, and the former password."""

    mechanism: str | None = None
    secret_version: str | None = None
    former: FormerPassword | None = None


def next_passwords(
    stored: Passwords,
    mechanism: str,
    secret_version: str | None,
    *,
    mechanisms: frozenset[str],
    overlap_ms: int,
    now_ms: int,
) -> Passwords | None:
    """Return the passwords once `mechanism` is the desired one.

    None: the password of that mechanism is the former one, and has to stay valid. `mechanisms` are those that the
    user has credentials for, `secret_version` is that of the desired Secret, None without one.
    """
    former = stored.former
    if former is not None and (former.mechanism not in mechanisms or now_ms >= former.ends_at_ms(overlap_ms)):
        former = None
    if not overlap_ms:
        return Passwords(mechanism=mechanism, secret_version=stored.secret_version)
    was_set = former is None or former.secret_version != stored.secret_version
    if stored.mechanism in (None, mechanism):
        is_due = mechanism not in mechanisms or secret_version != stored.secret_version
        if former is not None and is_due and not was_set:
            # The overlap begins when the current password is set.
            former = FormerPassword(
                mechanism=former.mechanism, secret_version=former.secret_version, replaced_at_ms=now_ms
            )
        return Passwords(mechanism=mechanism, secret_version=stored.secret_version, former=former)
    assert stored.mechanism is not None, "compared above"
    replaced = FormerPassword(
        mechanism=stored.mechanism, secret_version=stored.secret_version, replaced_at_ms=now_ms
    )
    if former is not None and former.mechanism == mechanism:
        if secret_version is None or secret_version != former.secret_version:
            return None
        # The change is taken back. Kafka has this password already.
        return Passwords(
            mechanism=mechanism, secret_version=secret_version, former=replaced if was_set else None
        )
    is_known = stored.mechanism in mechanisms
    return Passwords(
        mechanism=mechanism,
        secret_version=stored.secret_version,
        former=replaced if is_known else None,
    )


def utc_text(at_ms: int) -> str:
    """Return a Unix time in milliseconds as Kubernetes writes times."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

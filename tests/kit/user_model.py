"""A model of a user in a cluster, and of the user's Secret: changes are carried out as brokers and API server do."""

from collections.abc import Mapping
from dataclasses import replace

from quorate_admin.types.acls import AclBinding
from quorate_operator.entities.plan import Change
from quorate_operator.entities.users import (
    AddAcls,
    AlterQuotas,
    DeleteCredentials,
    MakeSecret,
    ObservedSecret,
    ObservedUser,
    RemoveAcls,
    SetCredentials,
    StoredUser,
)


class UserModel:
    """One user; `passwords` has what it may log in with, by mechanism."""

    def __init__(self, user: ObservedUser, passwords: Mapping[str, str] | None = None) -> None:
        self.user = user
        self.passwords = dict(passwords or dict.fromkeys(user.mechanisms, "of somebody"))
        self.set_version: str | None = None
        self._made = 0

    def stored(self, stored: StoredUser) -> StoredUser:
        """The status as the next look reads it."""
        return stored if self.set_version is None else replace(stored, secret_version=self.set_version)

    def apply(self, change: Change) -> None:
        """Carry out one change."""
        user = self.user
        match change:
            case MakeSecret():
                assert user.secret is None, "AlreadyExists"
                self._made += 1
                secret = ObservedSecret(version=f"made/{self._made}", password=f"p{self._made}", is_own=True)
                self.user = replace(user, secret=secret)
            case SetCredentials():
                self.passwords[change.mechanism] = change.password
                self.set_version = change.secret_version
            case DeleteCredentials():
                for mechanism in change.mechanisms:
                    del self.passwords[mechanism]
            case AddAcls():
                self.user = replace(user, acls=self._acls() | {*change.bindings})
            case RemoveAcls():
                assert {*change.bindings} <= self._acls()
                self.user = replace(user, acls=self._acls() - {*change.bindings})
            case AlterQuotas():
                quotas = {**user.quotas, **change.values}
                kept = {name: value for name, value in quotas.items() if value is not None}
                self.user = replace(user, quotas=kept)
            case _:
                raise AssertionError(f"{change!r}: no request does this")
        self.user = replace(self.user, mechanisms=frozenset(self.passwords))

    def _acls(self) -> frozenset[AclBinding]:
        assert self.user.acls is not None, "SECURITY_DISABLED"
        return self.user.acls

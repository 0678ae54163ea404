"""SCRAM credentials: AlterUserScramCredentials (KIP-554), and the stored keys of a password (RFC 5802)."""

import hashlib
import hmac
from datetime import timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from quorate_protocol import features
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import SCRAM_ITERATIONS_MIN, ScramMechanism
from quorate_protocol.kafka.generated.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from quorate_protocol.kafka.generated.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from quorate_protocol.records.generated import (
    BeginTransactionRecord,
    EndTransactionRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

from quorate_controller.control.api import ControlError, ControlResult
from quorate_controller.control.steps import ITEM, Parts, StepBudget, Steps, begun, text_work

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quorate_protocol.image import MetadataImage
    from quorate_protocol.records.framing import MetadataRecord

ITERATIONS_MAX: Final = 16384
USERS_PER_PART: Final = 100
"""Users whose credentials are written together: each part is a metadata transaction if it deletes any."""
TRANSACTION_NAME: Final = "SCRAM credentials"

Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


def credential_record(
    user: str, mechanism: ScramMechanism, *, salt: bytes, salted_password: bytes, iterations: int
) -> UserScramCredentialRecord:
    """The stored keys, from which neither the password nor its salted hash can be derived."""
    client_key = hmac.digest(salted_password, b"Client Key", mechanism.hash_name)
    return UserScramCredentialRecord(
        name=user,
        mechanism=int(mechanism),
        salt=salt,
        stored_key=hashlib.new(mechanism.hash_name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", mechanism.hash_name),
        iterations=iterations,
    )


class ScramManager:
    """Sets and deletes credentials. Stateless."""

    def __init__(self, image: "MetadataImage") -> None:
        self._image = image

    def alter_user_scram_credentials(self, request: AlterUserScramCredentialsRequest) -> ControlResult:
        """AlterUserScramCredentials 0: each user succeeds or fails alone; errors stand in the response.

        A user can be named once, whatever the mechanism. A repeated user is refused without a change.
        """
        return begun(self._altering(request))

    def _altering(self, request: AlterUserScramCredentialsRequest) -> Steps:
        budget = StepBudget()
        accepted: dict[str, Alteration] = {}
        errors: dict[str, ControlError] = {}
        for alteration in chain[Alteration](request.deletions, request.upsertions):
            user = alteration.name
            if user not in errors:
                try:
                    self._check(alteration, is_second=accepted.pop(user, None) is not None)
                    accepted[user] = alteration
                except ControlError as error:
                    errors[user] = error
            if budget.spend(ITEM):
                yield None
        parts = Parts()
        alterations = iter(tuple(accepted.values()))
        while some := tuple(islice(alterations, USERS_PER_PART)):
            # Another request may have deleted a credential in between.
            for alteration in some:
                try:
                    self._check(alteration, is_second=False)
                except ControlError as error:
                    errors[alteration.name] = error
                    del accepted[alteration.name]
            records = self._records(alteration for alteration in some if alteration.name in accepted)
            if parts.add(records, ITEM * len(some) + text_work(*(alteration.name for alteration in some))):
                yield parts.pop()
        results = [
            AlterUserScramCredentialsResult(user=user, error_code=ErrorCode.none, error_message=None)
            for user in accepted
        ]
        results += [
            AlterUserScramCredentialsResult(
                user=user,
                error_code=error.error_code,
                error_message=None if error.error_code is ErrorCode.unknown_server_error else error.message,
            )
            for user, error in errors.items()
        ]
        return parts.last(
            AlterUserScramCredentialsResponse(throttle_time=timedelta(0), results=tuple(results))
        )

    def _records(self, alterations: "Iterable[Alteration]") -> "tuple[MetadataRecord, ...]":
        """The records of alterations: the deletions in a metadata transaction of their own, then the others.

        ScramDelta.apply of Kafka 4.3.1 and 4.4.0 loses credentials if a removal leaves a mechanism without users
        and the same delta gives others a credential. A broker that starts makes one delta of all records that it
        reads. MetadataBatchLoader.loadBatch ends a delta where a transaction begins ("Emit the accumulated delta").
        So the first transaction separates the removals from the users before them, and the second one from all
        later records, whatever writes them.
        """
        deletions: list[MetadataRecord] = []
        upsertions: list[MetadataRecord] = []
        for alteration in alterations:
            if isinstance(alteration, ScramCredentialDeletion):
                deletions.append(
                    RemoveUserScramCredentialRecord(name=alteration.name, mechanism=alteration.mechanism)
                )
            else:
                upsertions.append(_credential(alteration))
        if not deletions or self._image.metadata_version < features.TRANSACTIONS_SINCE:
            return (*deletions, *upsertions)
        begin, end = BeginTransactionRecord(name=TRANSACTION_NAME), EndTransactionRecord()
        return (begin, *deletions, end, begin, *upsertions, end)

    def _check(self, alteration: Alteration, *, is_second: bool) -> None:
        if is_second:
            raise ControlError(
                ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"
            )
        if self._image.metadata_version < features.SCRAM_SINCE:
            raise ControlError(
                ErrorCode.unsupported_version, "The current metadata.version does not support SCRAM"
            )
        if not alteration.name:
            raise ControlError(ErrorCode.unacceptable_credential, "Username must not be empty")
        mechanism = ScramMechanism(alteration.mechanism)
        if mechanism is ScramMechanism.UNKNOWN:
            raise ControlError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
        if isinstance(alteration, ScramCredentialDeletion):
            if (mechanism, alteration.name) not in self._image.scram:
                raise ControlError(
                    ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
                )
        elif alteration.iterations < SCRAM_ITERATIONS_MIN:
            raise ControlError(ErrorCode.unacceptable_credential, "Too few iterations")
        elif alteration.iterations > ITERATIONS_MAX:
            raise ControlError(ErrorCode.unacceptable_credential, "Too many iterations")
        elif not alteration.salted_password:
            # Java's HMAC refuses an empty key.
            raise ControlError(ErrorCode.unknown_server_error)


def _credential(upsertion: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    return credential_record(
        upsertion.name,
        ScramMechanism(upsertion.mechanism),
        salt=upsertion.salt,
        salted_password=upsertion.salted_password,
        iterations=upsertion.iterations,
    )

"""What is done with a resource, as ACLs and authorized operations name it (KIP-140, KIP-430)."""

from typing import Final

from quorate_protocol.kafka.enums import KafkaEnum

__all__ = ("AclOperation", "operations_of_bits")

_NOT_TOLD: Final = -(2**31)


class AclOperation(KafkaEnum):
    """What is done with a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def operations_of_bits(bits: int) -> frozenset[AclOperation] | None:
    """The authorized operations that a response has as a bit field (KIP-430); None where there are none told."""
    if bits == _NOT_TOLD:
        return None
    told = frozenset(AclOperation(number) for number in range(31) if bits >> number & 1)
    return told - {AclOperation.UNKNOWN, AclOperation.ANY, AclOperation.ALL}

"""Which fields a message may lose when it is written in an older version.

Kafka's schemas mark them ``"ignorable": true``; any other field that is set makes the older version unusable.
"""

from .generated.ignorable_fields import IGNORABLE_FIELDS
from .schema import EntityClass


def is_ignorable(entity_type: EntityClass, field_name: str) -> bool:
    """Whether a field of a message, or of a struct inside one, may be dropped for a version that lacks it."""
    names = IGNORABLE_FIELDS.get(getattr(entity_type, "__api_key__", -1), set())
    return f"{entity_type.__name__}.{field_name.removesuffix('_ms')}" in names

"""What PyYAML raises for a text that is not YAML, and for values that do not fit their type."""

from typing import Final

import yaml

YAML_ERRORS: Final = (
    yaml.YAMLError,
    # Values that do not fit: 2024-13-01 for a date, "\UFFFFFFFF" for a character, a number of 5000 digits.
    ValueError,
    OverflowError,
    # Tags that do not fit: !!bool x, !!timestamp x.
    LookupError,
    AttributeError,
)
"""RecursionError is not among them: each caller has its own words for it."""

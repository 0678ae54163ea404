"""Loads the policies that a controller's configuration names, see `control/policies.py`."""

import importlib
from collections.abc import Mapping
from typing import Any, Final

from quorate_controller.config.keys import ALTER_CONFIG_POLICY, CREATE_TOPIC_POLICY
from quorate_controller.control.policies import Policies

_FIELDS: Final = {CREATE_TOPIC_POLICY: "create_topic", ALTER_CONFIG_POLICY: "alter_config"}


class PolicyError(Exception):
    """A policy cannot be loaded. The message is one line for people."""


def load_policies(properties: Mapping[str, str]) -> Policies:
    """Import the classes that the properties name, make one object of each and configure it.

    Raises:
        PolicyError: there is no such class, it has no `validate`, or it raises an exception.
    """
    named = {key: properties.get(key, "").strip() for key in _FIELDS}
    return Policies(**{_FIELDS[key]: _load(key, name, properties) for key, name in named.items() if name})


def _load(key: str, name: str, properties: Mapping[str, str]) -> Any:
    module, _, class_name = name.partition(":")
    try:
        policy = getattr(importlib.import_module(module), class_name)()
        configure = getattr(policy, "configure", None)
        if configure is not None:
            configure(dict(properties))
    except Exception as error:  # the code of others may raise anything
        raise PolicyError(f"{key}={name}: cannot be loaded: {error!r}") from error
    if not callable(getattr(policy, "validate", None)):
        raise PolicyError(f"{key}={name}: the class has no method validate")
    return policy

"""Configurations of clients for a played cluster with secured listeners: a file for each user of the manifest."""

from collections.abc import Iterator
from pathlib import Path

from quorate_operator.models.listeners import Listener
from quorate_operator.models.secrets import plain_users
from quorate_operator.planning.cluster import Role
from quorate_operator.properties import render_properties
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.security import client_properties

COMMENT = "Written by quorate play, with secrets: for --command-config, and for clients."
NODE_CLIENT = "client"
"""The file for a listener without users, where clients may show a certificate."""


def write_client_files(layout: Layout) -> None:
    """Writes a file for each user of the brokers' first listener, and one for the controllers'. Raises PlayError."""
    secrets, directory = layout.manifests.secrets, layout.directory
    listener = first_listener(layout, Role.BROKER)
    for user, login in _users(layout, listener) if listener is not None else ():
        assert listener is not None
        properties = client_properties(listener, secrets, login)
        directory.write(client_file(layout, user), render_properties(properties, COMMENT))
    listener = first_listener(layout, Role.CONTROLLER)
    if listener is not None:
        properties = client_properties(listener, secrets)
        directory.write(directory.controllers_client, render_properties(properties, COMMENT))


def first_listener(layout: Layout, role: Role) -> Listener | None:
    """Returns the listener at the bootstrap addresses; None if it is not secured, or if there is none."""
    nodes = layout.desired.of_role(role)
    listener = nodes[0].listeners[0] if nodes else None
    return None if listener is None or listener.protocol == "PLAINTEXT" else listener


def client_config(layout: Layout) -> Path | None:
    """Returns the file for clients of the brokers: that of the first super user who has one, or of the first user."""
    listener = first_listener(layout, Role.BROKER)
    if listener is None:
        return None
    users = [user for user, _ in _users(layout, listener)]
    authorization = layout.manifests.controllers.spec.authorization
    superior = (
        []
        if authorization is None
        else [super_user.removeprefix("User:") for super_user in authorization.super_users]
    )
    return client_file(layout, next((user for user in superior if user in users), users[0]))


def controllers_client_config(layout: Layout) -> Path | None:
    """Returns the file for clients of the controllers."""
    return None if first_listener(layout, Role.CONTROLLER) is None else layout.directory.controllers_client


def client_file(layout: Layout, user: str) -> Path:
    return layout.directory.clients / f"{user}.properties"


def _users(layout: Layout, listener: Listener) -> Iterator[tuple[str, tuple[str, str, str] | None]]:
    """Yields users with their login, those of SCRAM first."""
    sasl, secrets = listener.sasl, layout.manifests.secrets
    if sasl is None:
        yield NODE_CLIENT, None
        return
    users = layout.manifests.controllers.spec.scram_users
    known: set[str] = set()
    if users is not None and users.mechanism in sasl.mechanisms:
        for user, password in sorted(secrets[users.secret_name].values.items()):
            known.add(user)
            yield user, (users.mechanism, user, password)
    names = plain_users(sasl, secrets) if "PLAIN" in sasl.mechanisms else (sasl.user,)
    mechanism = "PLAIN" if "PLAIN" in sasl.mechanisms else sasl.mechanisms[0]
    for user in names:
        if user not in known:
            yield user, (mechanism, user, secrets[sasl.secret].values[user])

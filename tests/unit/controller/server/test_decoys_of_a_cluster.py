"""Which secret the decoys of SCRAM have: one that the controllers of a cluster share."""

from types import SimpleNamespace
from typing import Any

import pytest
from quorate_controller.config.listener_sasl import Login
from quorate_controller.server.server import decoys_of_all
from quorate_protocol.kafka.enums import ScramMechanism

NODE = Login(mechanism="PLAIN", username="node", password="node-secret")


def salt(secret: str | None, login: Login | None, cluster_id: str = "cluster") -> bytes:
    """The salt for an unknown user, of a controller with this configuration."""
    config: Any = SimpleNamespace(values={"delegation.token.secret.key": secret}, login=login)
    return decoys_of_all(config, cluster_id).credential(ScramMechanism.SCRAM_SHA_512, "nobody", 4096).salt


@pytest.mark.parametrize(
    ("secret", "login"), [("of tokens", None), (None, NODE), ("", NODE), ("of tokens", NODE)]
)
def test_controllers_of_a_cluster_share_their_decoys(secret: str | None, login: Login | None) -> None:
    """A stranger who asks two controllers, or one before and after a restart, learns nothing."""
    assert salt(secret, login) == salt(secret, login)
    assert salt(secret, login) != salt(secret, login, "another cluster")


def test_secrets_decide() -> None:
    """The secret of tokens comes first, and without any secret no stranger can compute a decoy."""
    of_tokens = Login(mechanism="SCRAM-SHA-256", username="token", password="other", is_token=True)
    assert (
        salt("of tokens", NODE) == salt("of tokens", of_tokens) != salt(None, NODE) != salt(None, of_tokens)
    )
    assert salt(None, None) != salt(None, None)

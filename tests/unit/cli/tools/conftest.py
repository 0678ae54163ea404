"""What the tests of tools share."""

import pytest
from kit.scripted_admin import ScriptedAdmin


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    """The client that tools get in place of a real one."""
    scripted = ScriptedAdmin()
    monkeypatch.setattr("quorate_admin.client.AdminClient", scripted)
    return scripted

"""Which plugins all tests share, and how hypothesis works."""

import os

import hypothesis

pytest_plugins = (
    "kit.tiers",
    "kit.flaky",
    "kit.compatibility",
    "kit.temporary",
    # fixtures of real parts
    "kit.kafka",
    "kit.java.fixtures",
    "kit.player",
    "kit.quorums",
    "kit.gatekeeper",
    "kit.pauses",
    "kit.parity.sites",
    "kit.spark",
    "kit.chromium",
    "kit.kubernetes_parts",
    "kit.api_requests",
    "kit.kind",
    # fakes and builders
    "kit.scripted_admin",
    "kit.gateway_metadata",
    "kit.desired_cluster",
)

# How long an example takes says more about the machine than about the code; hangs are what timeouts are for.
# Examples are the same each time: a run judges a change, and luck would judge with it. `make nightly` draws new ones.
hypothesis.settings.register_profile(
    "quorate", deadline=None, derandomize="QUORATE_NEW_EXAMPLES" not in os.environ
)
hypothesis.settings.load_profile("quorate")

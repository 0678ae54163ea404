"""Which plugins all tests share, and how hypothesis works."""

import os

import hypothesis

pytest_plugins = (
    "kit.tiers",
    "kit.flaky",
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
# A continuous integration draws the same examples each time: it judges a change, and luck would judge with it.
hypothesis.settings.register_profile("quorate", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("quorate")

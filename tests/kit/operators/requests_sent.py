"""How many requests an API server has served, as its own metrics count them."""

import time
from collections import Counter
from typing import NamedTuple

from kit.local_kubernetes.api_server import ApiServer
from prometheus_client.parser import text_string_to_metric_families


class Request(NamedTuple):
    """A kind of request: `subresource` is empty for the object itself."""

    verb: str
    resource: str
    subresource: str


def requests_sent(server: ApiServer) -> Counter[Request]:
    """The requests for resources so far, without watches, which count when they end."""
    with server.client() as client:
        serialized = client.param_serialize("GET", "/metrics", auth_settings=["BearerToken"])
        response = client.call_api(*serialized)
        text = response.read().decode()
    found: Counter[Request] = Counter()
    for family in text_string_to_metric_families(text):
        if family.name != "apiserver_request":
            continue
        for sample in family.samples:
            labels = sample.labels
            if labels["verb"] != "WATCH" and labels["resource"]:
                found[Request(labels["verb"], labels["resource"], labels["subresource"])] += int(sample.value)
    return found


def requests_during(server: ApiServer, seconds: float) -> Counter[Request]:
    """The requests of a time."""
    before = requests_sent(server)
    time.sleep(seconds)
    return requests_sent(server) - before

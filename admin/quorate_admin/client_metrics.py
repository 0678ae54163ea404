"""Reads what brokers publish about their clients: the metrics that Prometheus' JMX exporter serves."""

import asyncio
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode, urlsplit

from prometheus_client.parser import text_string_to_metric_families
from quorate_protocol.printable import printable
from quorate_protocol.security.fetching import FetchError, fetch
from quorate_protocol.security.oauth_properties import AllowedUrl
from quorate_protocol.security.stores import TlsConfig

from quorate_admin.diagnosis import BrokerSample, ClientFacts, clients_of_pages
from quorate_admin.diagnosis.client_facts import READ_METRICS
from quorate_admin.errors import ConfigError

_OK: Final = 200
PAGES_AT_A_TIME_MAX: Final = 16
"""The number of brokers whose metrics are read at the same time."""
LABEL_LENGTH_MAX: Final = 100
"""The number of characters that are kept of a label: clients choose their names."""


def parse_urls(text: str) -> tuple[AllowedUrl, ...]:
    """Return the URLs of metrics in a list with commas, each once. Raises ConfigError."""
    urls = tuple(dict.fromkeys(url.strip() for url in text.split(",")))
    for url in urls:
        try:
            parts = urlsplit(url)
            is_complete = bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_complete = False
        if not is_complete or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
            raise ConfigError(
                f"{url!r}: must be the http: or https: URL of a broker's metrics, such as http://broker:9404/metrics"
            )
    return tuple(map(AllowedUrl, urls))


async def read_clients(urls: Sequence[AllowedUrl]) -> ClientFacts:
    """Read the metrics of brokers at these URLs. Those that can't be read are in the facts, with the reason."""
    places = asyncio.Semaphore(PAGES_AT_A_TIME_MAX)

    async def read_in_turn(url: AllowedUrl) -> list[BrokerSample] | str:
        async with places:
            return await _read(url)

    read = await asyncio.gather(*map(read_in_turn, urls))
    pages: dict[str, list[BrokerSample]] = {}
    problems: dict[str, str] = {}
    for url, page in zip(urls, read, strict=True):
        if isinstance(page, str):
            problems[url] = page
        else:
            pages[url] = page
    return clients_of_pages(pages, problems)


async def _read(url: AllowedUrl) -> list[BrokerSample] | str:
    """Return the samples at a URL, or why they can't be read."""
    # The exporter leaves out other metrics, of which a broker may have megabytes.
    wanted = urlencode([("name[]", name) for name in READ_METRICS])
    try:
        response = await fetch(AllowedUrl(f"{url}?{wanted}"), tls=TlsConfig(), headers={})
    except FetchError as error:
        return str(error)
    if response.status != _OK:
        return f"the response has status {response.status}"
    try:
        # Clients choose their names, and with them the size of the page.
        return await asyncio.to_thread(parse_page, response.content.decode())
    except ValueError as error:
        return f"the response is not text of Prometheus: {printable(str(error))}"


def parse_page(text: str) -> list[BrokerSample]:
    """Return those samples of a page that have facts about clients. Raises ValueError."""
    try:
        return [
            BrokerSample(
                sample.name,
                {name: printable(value[:LABEL_LENGTH_MAX]) for name, value in sample.labels.items()},
                sample.value,
            )
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name in READ_METRICS
        ]
    except (IndexError, KeyError) as error:
        raise ValueError(f"{type(error).__name__} {error}") from None

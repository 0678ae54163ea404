"""The report in a real browser: on a phone, a tablet, a desk and paper, and nothing on the console."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kit.histories import bad_day, calm_day
from pyspark_quorate.report.page import render

WIDTHS = (360, 768, 1280)
MADE_AT = datetime(2026, 3, 14, 20, tzinfo=UTC)
PICTURES = 7
SHOWN = "[...document.querySelectorAll('svg')].filter((one) => one.getBoundingClientRect().width > 0)"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a bad day and a calm one."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(render([bad_day(), calm_day()], MADE_AT), encoding="utf-8")
    return file


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
async def test_it_fits_and_says_nothing_on_the_console(
    tab: Any, report: Path, tmp_path: Path, width: int, is_dark: bool
) -> None:
    await tab.emulate(width=width, is_dark=is_dark)
    await tab.open(report.as_uri())
    pictures = Path(os.environ.get("QUORATE_SCREENSHOTS", tmp_path))
    await tab.screenshot(pictures / f"report-{width}-{'dark' if is_dark else 'light'}.png")
    assert await tab.evaluate("document.documentElement.scrollWidth") <= width
    assert await tab.evaluate(f"{SHOWN}.length") == PICTURES + 1
    smallest = await tab.evaluate(
        f"Math.min(...{SHOWN}.flatMap((one) => [...one.querySelectorAll('text')])"
        ".map((one) => one.getBoundingClientRect().height))"
    )
    assert smallest >= 10
    outside = await tab.evaluate(
        f"{SHOWN}.flatMap((one) => {{ const box = one.getBoundingClientRect(); "
        "return [...one.querySelectorAll('text')]"
        ".filter((text) => { const its = text.getBoundingClientRect(); "
        "return its.left < box.left - 1 || its.right > box.right + 1; }).map((text) => text.textContent); })"
    )
    assert outside == []
    lightness = await tab.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((a, b) => a + +b, 0)"
    )
    assert (lightness < 200) == is_dark
    assert tab.complaints == []


async def test_it_loads_nothing_and_its_pictures_have_names(tab: Any, report: Path) -> None:
    await tab.emulate(width=1280)
    await tab.open(report.as_uri())
    assert await tab.evaluate("performance.getEntriesByType('resource').map((one) => one.name)") == []
    assert await tab.evaluate("document.scripts.length") == 0
    ids = await tab.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
    tree = await tab.call("Accessibility.getFullAXTree")
    named = {
        node["name"]["value"]
        for node in tree["nodes"]
        if not node["ignored"] and node["role"]["value"] in {"image", "img"}
    }
    assert {f"Active controller, {day.cluster_id}" for day in (bad_day(), calm_day())} <= named
    await tab.evaluate("document.querySelector('details').open = true")
    assert "3003" in await tab.evaluate("document.querySelector('details table').textContent")
    assert tab.complaints == []


async def test_it_can_be_printed(tab: Any, report: Path) -> None:
    await tab.emulate(width=360, is_dark=True)
    await tab.open(report.as_uri())
    await tab.call("Emulation.setEmulatedMedia", media="print")
    classes = await tab.evaluate(f"{SHOWN}.map((one) => one.getAttribute('class'))")
    assert set(classes) == {"wide"}
    assert await tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    printed = await tab.call("Page.printToPDF", printBackground=True)
    assert len(printed["data"]) > 10_000
    assert tab.complaints == []

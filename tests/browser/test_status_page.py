"""The status page in a real browser: how it looks, that it is live, the keyboard, and that nothing goes wrong."""

import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.rolling import RollingCluster
from kit.snapshots import busy, put, well
from quorate_operator.planning.steps import Plan, StopNode
from quorate_operator.web.snapshots import ClusterKey

WIDTHS = (360, 768, 1280)
TOKEN = "a token of the page"
CLUSTER = "/clusters/kafka/quorum"
IS_LIVE = "document.getElementById('live').textContent === 'live'"
FOCUSED = "document.activeElement.textContent || document.activeElement.id"

Serve = Callable[..., Awaitable[Any]]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where pictures of pages go."""
    folder = Path(os.environ.get("QUORATE_SCREENSHOTS", tmp_path))
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
async def test_it_fits_phones_tablets_and_desks_by_day_and_by_night(
    tab: Any, serve: Serve, pictures: Path, width: int, is_dark: bool
) -> None:
    served = await serve(token=TOKEN)
    for snapshot in (busy(), replace(well(), key=ClusterKey("kafka", "calm"))):
        put(served.registry, snapshot)
    await tab.emulate(width=width, is_dark=is_dark)
    for name, path in (("list", "/"), ("busy", CLUSTER), ("calm", "/clusters/kafka/calm")):
        await tab.open(f"{served.url}{path}")
        await tab.until(IS_LIVE)
        await tab.screenshot(pictures / f"{name}-{width}-{'dark' if is_dark else 'light'}.png")
        assert await tab.evaluate("document.documentElement.scrollWidth") <= width
        lightness = await tab.evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((a, b) => a + +b, 0)"
        )
        assert (lightness < 200) == is_dark
    assert tab.complaints == []


async def test_it_changes_while_the_cluster_does(tab: Any, serve: Serve) -> None:
    """What happens is seen without a reload, and scroll and focus stay."""
    served = await serve()
    put(served.registry, busy())
    await tab.open(f"{served.url}{CLUSTER}")
    await tab.until(IS_LIVE)
    await tab.evaluate("document.querySelector('#brokers .scroll').focus()")
    await tab.evaluate("window.mark = 1")
    put(served.registry, well())
    await tab.until("document.querySelector('#summary .pill').textContent === 'ready'")
    await tab.until("document.getElementById('plan').textContent.includes('as desired')")
    assert await tab.evaluate("document.querySelector('#announcement').textContent") == (
        "quorum: ready; nothing to do."
    )
    assert await tab.evaluate("window.mark") == 1, "the page was loaded again"
    served.registry.forget(busy().key)
    await tab.until("document.getElementById('live').textContent === 'this cluster is gone'")
    assert tab.complaints == []


async def test_everything_can_be_done_with_the_keyboard(tab: Any, serve: Serve) -> None:
    served = await serve(token=TOKEN)
    put(served.registry, busy())
    await tab.open(f"{served.url}/")
    await tab.press("Tab")
    assert await tab.evaluate(FOCUSED) == "Skip to the content"
    box = "document.activeElement.getBoundingClientRect()"
    assert await tab.evaluate(f"{box}.left >= 0 && {box}.top >= 0"), "what has the focus can be seen"
    await tab_to(tab, "document.activeElement.id === 'token'")
    await tab.call("Input.insertText", text=TOKEN)
    await enter(tab)
    await tab_to(tab, "document.activeElement.textContent === 'quorum'")
    await enter(tab)
    assert await tab.evaluate("location.pathname") == CLUSTER
    await tab_to(tab, "document.activeElement.id === 'do-restart-3000'")
    assert await tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    # A change of the page does not take the focus away.
    calm = replace(well(), plan=Plan(steps=()))
    put(served.registry, calm)
    await tab.until("document.querySelector('#summary .pill').textContent === 'ready'")
    await tab.until("document.activeElement.id === 'do-restart-3000'")
    await enter(tab)
    assert served.commands.done == [("restart", ClusterKey("kafka", "quorum"), 3000)]
    assert "restart was requested" in await tab.evaluate(
        "document.querySelector('[role=status].box').textContent"
    )
    assert tab.complaints == []


async def test_a_screen_reader_finds_its_way(tab: Any, serve: Serve) -> None:
    served = await serve()
    put(served.registry, busy())
    await tab.open(f"{served.url}{CLUSTER}")
    tree = await tab.call("Accessibility.getFullAXTree")
    seen = {
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree["nodes"]
        if not node["ignored"]
    }
    roles = {role for role, _ in seen}
    assert {"banner", "main", "navigation", "contentinfo", "status"} <= roles
    assert {
        ("region", heading) for heading in ("Plan", "Quorum", "Brokers", "Registrations", "Addresses")
    } <= seen
    assert ("image", "The controller quorum") in seen
    assert {("table", "Controllers"), ("table", "Brokers"), ("columnheader", "State")} <= seen
    assert ("rowheader", "3001") in seen
    nameless = [role for role, name in seen if role in ("button", "link", "textbox") and not name]
    assert nameless == []


async def test_names_from_outside_are_shown_and_never_run(tab: Any, serve: Serve) -> None:
    """The name of a host and the text of an error can't run scripts in the page."""
    served = await serve()
    hostile = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    put(served.registry, replace(busy(), problem=hostile))
    await tab.open(f"{served.url}{CLUSTER}")
    await tab.until(IS_LIVE)
    assert hostile in await tab.evaluate("document.getElementById('summary').textContent")
    assert await tab.evaluate("document.title") == "quorum · Quorate"
    assert tab.complaints == []


async def tab_to(tab: Any, condition: str, presses_max: int = 40) -> None:
    """Press Tab until the condition is true."""
    for _ in range(presses_max):
        await tab.press("Tab")
        if await tab.evaluate(condition):
            return
    raise AssertionError(f"Tab never got where {condition}")


async def enter(tab: Any) -> None:
    """Press Enter on what leads to another page, and wait for it."""
    await tab.follow(tab.press("Enter"))


async def test_a_roll_can_be_watched_step_by_step(tab: Any, serve: Serve, pictures: Path) -> None:
    cluster, served = RollingCluster(), await serve()
    put(served.registry, cluster.snapshot())
    await tab.open(f"{served.url}{CLUSTER}")
    await tab.until(IS_LIVE)
    cluster.ask_restart()
    stopped, counts = [], []
    while (snapshot := cluster.snapshot()).plan.steps:
        due = snapshot.plan.due
        assert due, f"the roll stands: {snapshot.plan}"
        put(served.registry, snapshot)
        for step in (step for step in snapshot.view().steps if step.is_due):
            words = f"{step.what} {step.step.reason}"
            await tab.until(f"document.getElementById('plan').textContent.includes({json.dumps(words)})")
        counts.append(await tab.evaluate("document.querySelector('.quorum .count').textContent"))
        stopped += [action.node_id for action in due if isinstance(action, StopNode)]
        if counts[-1] != counts[0]:
            await tab.screenshot(pictures / "roll.png")
        for event in cluster.do(due):
            served.registry.add_event(snapshot.key, event)
    put(served.registry, cluster.snapshot())
    await tab.until("document.querySelector('#summary .pill').textContent === 'ready'")
    assert sorted(stopped) == [3000, 3001, 3002]
    assert stopped[-1] == 3001, "the leader goes last"
    assert set(counts) == {"3/3", "2/3"}
    assert tab.complaints == []

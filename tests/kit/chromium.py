"""Headless Chromium, driven by a test over the DevTools protocol."""

import asyncio
import base64
import contextlib
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest_asyncio
from kit.requirements import missing
from kit.waiting import until
from quorate_operator.web.server import StatusPage
from quorate_operator.web.snapshots import ClusterKey, SnapshotRegistry

START_TIMEOUT_S = 60
RESPONSE_TIMEOUT_S = 30
HOW_TO_GET = "no Chromium was found; on Debian: apt-get install chromium, or set CHROMIUM to another one"
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-port=0",
)
KEYS = {"Tab": 9, "Enter": 13}


class Tab:
    """One page, with everything that it wrote to its console or could not load."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._responses: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self.complaints: list[str] = []

    async def _read(self) -> None:
        async for message in self._socket:
            content = message.json()
            if (number := content.get("id")) is not None:
                self._responses.pop(number).set_result(content)
            else:
                self._note(content["method"], content["params"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.complaints.append(f"console.{params['type']}: {params['args']}")
            case "Log.entryAdded":
                self.complaints.append(str(params["entry"]))

    async def call(self, method: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol; its result."""
        number = next(self._numbers)
        self._responses[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        response = await asyncio.wait_for(self._responses[number], RESPONSE_TIMEOUT_S)
        assert "error" not in response, f"{method}: {response['error']}"
        return response["result"]

    async def begin(self) -> Self:
        """Subscribe to the events of the page."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        return self

    async def open(self, url: str) -> None:
        """Go there. Returns when the page is loaded."""
        await self.follow(self.call("Page.navigate", url=url))

    async def follow(self, leads_away: Awaitable[object]) -> None:
        """Do what leads to another page. Returns when that is loaded."""
        self._loaded.clear()
        await leads_away
        await asyncio.wait_for(self._loaded.wait(), RESPONSE_TIMEOUT_S)

    async def emulate(self, *, width: int, height: int = 900, is_dark: bool = False) -> None:
        """Set the size of the screen, and the light or the dark color scheme."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript, after it was awaited."""
        response = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in response, f"{expression}: {response}"
        return response["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait for the page to change until an expression is true; its value."""
        wait = (
            "new Promise((resolve) => { const look = () => { const found = (%s); "
            "if (found) { observer.disconnect(); resolve(found); } }; "
            "const observer = new MutationObserver(look); observer.observe(document, "
            "{subtree: true, childList: true, characterData: true, attributes: true}); look(); })"
        )
        return await self.evaluate(wait % expression)

    async def press(self, key: str) -> None:
        """Press a key and let it go."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            sent = text if kind == "keyDown" else {}
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=KEYS[key],
                **sent,
            )

    async def screenshot(self, file: Path) -> None:
        """Write a picture of the whole page."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        response = await self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        await asyncio.to_thread(file.write_bytes, base64.b64decode(response["data"]))

    async def close(self) -> None:
        """Disconnect."""
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        await self._socket.close()


@pytest_asyncio.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    """A new Chromium with a new profile, and one page in it; skips without Chromium."""
    found = os.environ.get("CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        missing("browser", HOW_TO_GET)
    profile = tmp_path / "profile"
    with (tmp_path / "chromium.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            "setpriv",
            *("--pdeathsig", "KILL", "--", found, *FLAGS, f"--user-data-dir={profile}", "about:blank"),
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "HOME": str(tmp_path)},
        )
    try:
        port = await asyncio.wait_for(_debugging_port(profile, process), START_TIMEOUT_S)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            async with session.get("/json/list") as response:
                (page,) = [target for target in await response.json() if target["type"] == "page"]
            socket = await session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=64 * 2**20)
            made = Tab(socket)
            try:
                yield await made.begin()
            finally:
                await made.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()


async def _debugging_port(profile: Path, process: asyncio.subprocess.Process) -> int:
    """The port that Chromium writes down when it listens."""
    file = profile / "DevToolsActivePort"

    def written() -> str | None:
        assert process.returncode is None, f"Chromium ended: {(profile.parent / 'chromium.log').read_text()}"
        text = file.read_text() if file.exists() else ""
        return text if "\n" in text else None

    return int((await until(written, "Chromium to listen")).splitlines()[0])


class Recorder:
    """Writes down what it is asked to do. Implements `Commands`."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ClusterKey, object]] = []

    async def pause(self, key: ClusterKey, *, paused: bool) -> None:
        """Write it down."""
        self.done.append(("pause", key, paused))

    async def restart_node(self, key: ClusterKey, node_id: int) -> None:
        """Write it down."""
        self.done.append(("restart", key, node_id))


class Served:
    """A status page that runs."""

    def __init__(self, registry: SnapshotRegistry, commands: Recorder, port: int) -> None:
        self.registry = registry
        self.commands = commands
        self.url = f"http://127.0.0.1:{port}"


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[Callable[..., Any]]:
    """Start a status page on a free port; `token` allows more than reading."""
    pages: list[StatusPage] = []

    async def start(token: str | None = None) -> Served:
        registry, commands = SnapshotRegistry(), Recorder()
        page = StatusPage(registry, commands, token)
        pages.append(page)
        await page.start("127.0.0.1", 0)
        return Served(registry, commands, page.port)

    yield start
    for page in pages:
        await page.close()

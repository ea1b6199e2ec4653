"""A page in headless Chromium, driven over its own debugging protocol: no driver, no library but a web socket.

https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_SECONDS = 60.0
WIDTH, HEIGHT = 1366, 1000


class Page:
    """`errors` are what the console had of that kind, and every exception that no script caught."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.command(f"{domain}.enable")
        self.command(
            "Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False
        )

    def command(self, method: str, **params: object) -> dict[str, Any]:  # Any: the protocol's own JSON
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE_SECONDS))
            if message.get("id") == self._number:
                assert "error" not in message, message
                return dict(message["result"])
            self._hear(message)

    def _hear(self, message: dict[str, Any]) -> None:  # Any: as above
        params = message["params"]
        match message["method"]:
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] == "error":
                self.errors.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case _:
                pass

    def run(self, script: str) -> Any:  # Any: whatever the script gives
        answer = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait, frame by frame, for a condition of the page."""
        deadline = monotonic() + PATIENCE_SECONDS
        while not self.run(f"new Promise(r => requestAnimationFrame(() => r(Boolean({condition}))))"):
            assert monotonic() < deadline, f"{condition} never came true; console: {self.errors}"

    def open(self, url: str, *, before: str = "") -> None:
        """`before` runs in the page ahead of its own scripts."""
        if before:
            self.command("Page.addScriptToEvaluateOnNewDocument", source=before)
        self.command("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def look(self, scheme: str) -> None:
        """light or dark"""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path) -> bytes:
        image = base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"])
        path.write_bytes(image)
        return image


@contextmanager
def page(folder: Path) -> Iterator[Page]:
    assert CHROMIUM is not None
    arguments = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}", "--disable-gpu"]
    arguments += ["--no-first-run", "--disable-dev-shm-usage"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # it has none for root; the page is our own
    with subprocess.Popen(
        [CHROMIUM, *arguments, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stderr is not None
            address = next(
                line.split(b"ws://")[1].split(b"/")[0].decode()
                for line in process.stderr
                if b"DevTools listening" in line
            )
            targets = httpx.get(f"http://{address}/json/list", timeout=PATIENCE_SECONDS).json()
            (url,) = (each["webSocketDebuggerUrl"] for each in targets if each["type"] == "page")
            with connect(url, max_size=None) as socket:
                yield Page(socket)
        finally:
            process.terminate()

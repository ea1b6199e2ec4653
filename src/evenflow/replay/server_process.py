"""A server as its operator sees it: a process that says where it listens, and ends at SIGTERM.

For what measures or shows a whole server from outside: two processes and a real socket, as in production.
"""

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from evenflow.core.errors import EngineUnavailable

START_SECONDS = 600.0
STOP_SECONDS = 40.0
_ANNOUNCEMENT = "evenflow serves "
_LINES_KEPT = 100


class ServerProcess:
    """`evenflow serve` with these arguments. A thread reads what it says, so that a full pipe never holds it up.

    It is in a process group of its own: an interrupt at the terminal reaches its starter only, who ends it in order.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", "evenflow", "serve", *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0
        )
        self._said: deque[str] = deque(maxlen=_LINES_KEPT)
        self._urls: SimpleQueue[str | None] = SimpleQueue()
        self._listener = threading.Thread(target=self._listen, name="server-stderr", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._said.append(line)
                if line.startswith(_ANNOUNCEMENT):
                    self._urls.put(line.split()[-1])
        self._urls.put(None)

    @property
    def pid(self) -> int:
        return self._process.pid

    def url(self) -> str:
        """To be asked once, and waited for. Raises EngineUnavailable with what the server said if it does not start."""
        try:
            url = self._urls.get(timeout=START_SECONDS)
        except Empty:
            raise EngineUnavailable(f"the server did not start within {START_SECONDS:.0f} s; {self._words()}") from None
        if url is None:
            raise EngineUnavailable(f"the server did not start; {self._words()}")
        return url

    def said(self) -> str:
        """The last lines that it said, as far as read; the last of all once `wait` has returned."""
        return "".join(self._said).strip()

    def _words(self) -> str:
        return f"it said: {self.said()}"

    def ask_to_end(self) -> None:
        """SIGTERM. Returns at once; nothing happens if the server has ended."""
        self._process.terminate()

    def wait(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """The exit status; the server is killed if it takes longer."""
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._listener.join()
        return self._process.wait()


@contextmanager
def server_process(arguments: Sequence[str]) -> Iterator[ServerProcess]:
    """The server ends with the context, if it has not ended by then."""
    server = ServerProcess(arguments)
    try:
        yield server
    finally:
        server.ask_to_end()
        server.wait()

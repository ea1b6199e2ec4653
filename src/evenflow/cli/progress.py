"""What is going on, for whoever waits: a spinner or a bar on a screen, plain lines where nobody could see one move."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.text import Text

from evenflow.cli.terminal import Terminal
from evenflow.models.pull import PULLABLE, PullProgress, default_cache_dir, pulled_path
from evenflow.models.source import resolve_model
from evenflow.observe.visible import visible

_LINES_PER_DOWNLOAD = 10


def is_screen(console: Console) -> bool:
    """Whether what is drawn can be drawn over."""
    return console.is_terminal and not console.is_dumb_terminal


def say(console: Console, text: str) -> None:
    """A line as it is, however wide the console."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def saying(console: Console, what: str | None = None) -> Iterator[Callable[[str], None]]:
    """Give what is yielded whatever is being done now: a spinner's words, or a line for each."""
    if is_screen(console):
        # Of a string a status would take what is in brackets for markup.
        with console.status(Text(visible(what or ""))) as status:
            yield lambda now: status.update(Text(visible(now)))
        return
    if what is not None:
        say(console, what)
    yield lambda now: say(console, now)


@contextmanager
def lines_every(seconds: float, console: Console, now: Callable[[], str]) -> Iterator[None]:
    """Say `now()` again and again, from a thread, until the context ends."""
    over = threading.Event()

    def speak() -> None:
        while not over.wait(seconds):
            say(console, now())

    speaker = threading.Thread(target=speak, name="progress-lines", daemon=True)
    speaker.start()
    try:
        yield
    finally:
        over.set()
        speaker.join()


def model_on_disk(name_or_path: str, cache_dir: Path | None = None) -> Path:
    """The folder or file of a model, fetched for all to see if it must be; says where it went."""
    folder = cache_dir or default_cache_dir()
    if name_or_path not in PULLABLE or pulled_path(name_or_path, folder) is not None:
        return resolve_model(name_or_path, cache_dir=folder)
    console = Terminal(stderr=True)
    began = time.monotonic()
    fetch = _under_a_bar if is_screen(console) else _with_lines
    path = fetch(console, name_or_path, folder)
    say(console, f"{name_or_path} is in {path} (fetched and checked in {time.monotonic() - began:.0f} s)")
    return path


def _under_a_bar(console: Console, name: str, folder: Path) -> Path:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(f"fetching {name}", total=PULLABLE[name].download_bytes)

        def show(progress: PullProgress) -> None:
            bar.update(task, completed=progress.num_bytes, total=progress.total_bytes)

        return resolve_model(name, cache_dir=folder, progress=show)


def _with_lines(console: Console, name: str, folder: Path) -> Path:
    total = PULLABLE[name].download_bytes
    said = 0
    say(console, f"fetching {name}: {total / 1e6:.0f} MB")

    def show(progress: PullProgress) -> None:
        nonlocal said
        part = progress.num_bytes * _LINES_PER_DOWNLOAD // progress.total_bytes
        if part > said:
            said = part
            say(console, f"fetching {name}: {progress.num_bytes / 1e6:.0f} of {progress.total_bytes / 1e6:.0f} MB")

    return resolve_model(name, cache_dir=folder, progress=show)

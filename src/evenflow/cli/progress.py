"""A progress bar for what takes long: fetching a model."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from evenflow.models.pull import PULLABLE, PullProgress, default_cache_dir, pulled_path
from evenflow.models.source import resolve_model


def model_on_disk(name_or_path: str, cache_dir: Path | None = None) -> Path:
    """The folder or file of a model, fetched under a progress bar if it must be; says where it went."""
    folder = cache_dir or default_cache_dir()
    console = Console(stderr=True)
    if name_or_path not in PULLABLE or pulled_path(name_or_path, folder) is not None:
        return resolve_model(name_or_path, cache_dir=folder)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(f"fetching {name_or_path}", total=PULLABLE[name_or_path].download_bytes)

        def show(progress: PullProgress) -> None:
            bar.update(task, completed=progress.num_bytes, total=progress.total_bytes)

        path = resolve_model(name_or_path, cache_dir=folder, progress=show)
    console.print(f"{name_or_path} is in {path}", highlight=False, soft_wrap=True)
    return path

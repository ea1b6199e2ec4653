"""`serve --config evenflow.toml`: settings from a file, under those of the command line.

    [engine]                       fields of the engine's settings, by the names of their flags with underscores
    max_num_seqs = 32
    [server]                       likewise; secrets stay in the environment
    port = 8000
    [scheduling]                   the policy, as in a policy file
    preset = "evenflow-throughput"

What the command line says wins. Unknown names are refused.
"""

import tomllib
from pathlib import Path

from cyclopts import App, ArgumentCollection
from cyclopts.config import Dict

from evenflow.core.errors import ConfigError
from evenflow.core.policy.spelling import nearest
from evenflow.files.small_file import read_small_text

FLAG = "--config"
SECTIONS = ("engine", "server", "scheduling")
_SECRETS = ("api_key", "admin_key")
_MAX_BYTES = 1 << 20


def from_config_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Gives values to arguments that the command line left out; for cyclopts, between reading and converting."""
    chosen = [argument for argument in arguments if FLAG in argument.names]
    if not chosen or not chosen[0].tokens:
        return
    path = Path(chosen[0].tokens[0].value)
    known = {name[2:].replace("-", "_") for argument in arguments for name in argument.names} - {"config"}
    settings = settings_of(path, known)
    Dict(settings, source=str(path), use_commands_as_keys=False)(app, commands, arguments)


def settings_of(path: Path, known: set[str]) -> dict[str, object]:
    """By flag, as underscored names. Raises ConfigError."""
    table = _read(path)
    for section, content in table.items():
        if section not in SECTIONS:
            raise ConfigError(f"{path} has a section [{section}]; did you mean [{nearest(section, SECTIONS)}]?")
        if not isinstance(content, dict):
            raise ConfigError(f"{path}: {section} must be a table, [{section}]")
    settings: dict[str, object] = {}
    for section in ("engine", "server"):
        for name, value in table.get(section, {}).items():
            if name in _SECRETS:
                raise ConfigError(f"{path}: {name} is a secret; set EVENFLOW_{name.upper()} in the environment instead")
            if name not in known:
                raise ConfigError(f"{path}: [{section}] {name} is no setting; did you mean {nearest(name, known)}?")
            if not isinstance(value, str | int | float | bool | list):
                raise ConfigError(f"{path}: [{section}] {name} cannot be {value!r}")
            settings[name] = value
    if "scheduling" in table:
        if "policy" in settings:
            raise ConfigError(f"{path} names a policy in [engine] and has one in [scheduling]; keep one of them")
        settings["policy"] = str(path)
    return settings


def _read(path: Path) -> dict[str, dict[str, object]]:
    if path.suffix != ".toml":
        raise ConfigError(f"{path} must be a .toml file")
    try:
        return tomllib.loads(read_small_text(path, _MAX_BYTES))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from error

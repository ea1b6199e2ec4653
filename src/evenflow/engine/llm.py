"""evenflow without a server.

with LLM(model="smollm2-135m") as llm:
    [completion] = llm.generate("The capital of France is")
"""

import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from enum import Enum
from os import PathLike, fspath

import msgspec

from evenflow.core.errors import ConfigError
from evenflow.engine.announcement import announcement
from evenflow.engine.config import EngineConfig
from evenflow.engine.offline import OfflineEngine
from evenflow.engine.thread import ThreadLink
from evenflow.models.source import resolve_model
from evenflow.models.tokenizer import load_tokenizer

OFFLINE_PRESET = "evenflow-throughput"
_DEFAULT_MODEL = EngineConfig().model


class LLM(OfflineEngine):
    """`settings` are the fields of `EngineConfig`. Loads the model before it returns; pulls it first if need be.
    With `verbose`, stderr is told the resolved settings and where the memory goes.

    The policy is evenflow-throughput unless another is named: nobody watches an offline batch token by token.

    Raises ConfigError or ModelError, with what to change.
    """

    def __init__(
        self, model: str | PathLike[str] = _DEFAULT_MODEL, *, verbose: bool = False, **settings: object
    ) -> None:
        if not isinstance(model, str | PathLike):
            raise ConfigError(f"model must be a name or a path, not {type(model).__name__}")
        config = _config({"model": fspath(model), **settings})
        path = resolve_model(config.model)
        config = replace(config, policy=config.policy or OFFLINE_PRESET)
        super().__init__(ThreadLink(replace(config, model=str(path))), load_tokenizer(path))
        if verbose:
            sys.stderr.writelines(f"{line}\n" for line in announcement(self.facts))


def _config(settings: Mapping[str, object]) -> EngineConfig:
    known = {field.name for field in fields(EngineConfig)}
    for name in settings:
        if name not in known:
            raise ConfigError(f"{name} is not a setting; there are {', '.join(sorted(known))}")
    plain = {name: value.value if isinstance(value, Enum) else value for name, value in settings.items()}
    try:
        return msgspec.convert(plain, EngineConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"settings: {error}") from error

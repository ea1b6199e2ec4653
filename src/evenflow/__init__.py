"""evenflow: LLM inference with continuous batching that can be seen, explained, replayed, simulated and tuned.

The names here are imported on first use, so that `import evenflow` is cheap and does not import torch.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenflow.core.errors import ConfigError, EvenflowError, ModelError, RequestError
    from evenflow.core.request import FinishReason, SamplingParams
    from evenflow.engine.config import EngineConfig
    from evenflow.engine.llm import LLM
    from evenflow.engine.offline import Completion

__version__ = version("evenflow")

_HOMES = {
    "LLM": "evenflow.engine.llm",
    "Completion": "evenflow.engine.offline",
    "ConfigError": "evenflow.core.errors",
    "EngineConfig": "evenflow.engine.config",
    "EvenflowError": "evenflow.core.errors",
    "FinishReason": "evenflow.core.request",
    "ModelError": "evenflow.core.errors",
    "RequestError": "evenflow.core.errors",
    "SamplingParams": "evenflow.core.request",
}

__all__ = [
    "LLM",
    "Completion",
    "ConfigError",
    "EngineConfig",
    "EvenflowError",
    "FinishReason",
    "ModelError",
    "RequestError",
    "SamplingParams",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'evenflow' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

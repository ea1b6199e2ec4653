"""`evenflow serve`: start the engine process, and meanwhile everything else.

The child imports torch and loads the model for some seconds. It is launched as soon as its model is known, before this
process imports the web framework and reads the tokenizer, which so cost no time of their own.
"""

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from evenflow.cli.options import EngineOptions, Switch
from evenflow.cli.progress import model_on_disk
from evenflow.core.errors import ConfigError
from evenflow.engine.child import ProcessLink
from evenflow.engine.config import EngineConfig
from evenflow.server.api_keys import ApiKeys
from evenflow.server.binding import ServeSettings, check_binding


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """Where the server listens and who may use it."""

    host: str = "127.0.0.1"
    """Address to listen on. Any but the loopback address can be reached by other machines, and needs an API key."""
    port: int = 8000
    """Port to listen on; 0 takes a free one and says which."""
    served_model_name: str | None = None
    """The model's name for clients; what --model says if not given."""
    api_key: Annotated[str | None, Parameter(env_var="EVENFLOW_API_KEY", show_default=False)] = None
    """Key that clients must send as a bearer token. Set it in the environment: other users can read command lines."""
    api_keys_file: Path | None = None
    """File with a line 'TENANT KEY' for each key that clients may send; the tenant is what fairness goes by."""
    admin_key: Annotated[str | None, Parameter(env_var="EVENFLOW_ADMIN_KEY", show_default=False)] = None
    """Key for /admin/scheduling, which shows and changes the scheduling policy; without it nobody may."""
    allow_unauthenticated: Switch = False
    """Let other machines in without a key."""
    shutdown_timeout: float = 30.0
    """Seconds that requests under way may take to finish after SIGTERM or Ctrl-C; a second signal ends them at once."""
    event_log: Path | None = None
    """File for every scheduling event, as JSON lines; one that exists is replaced, and its full parts with it."""
    event_log_max_size: str | None = None
    """Size, such as 256MiB, at which the event log goes on in a new file; full ones are called FILE.1, FILE.2, ..."""
    event_log_keep: int = 8
    """Full files of the event log to keep, if it has a largest size; the oldest is removed for a new one."""
    config: Path | None = None
    """TOML file with these settings, as `evenflow tune` writes one; what the command line says wins over it."""

    def keys(self) -> ApiKeys | None:
        """Raises ConfigError."""
        if self.api_keys_file is not None:
            if self.api_key is not None:
                raise ConfigError(
                    "Give either one API key (--api-key, EVENFLOW_API_KEY) or an --api-keys-file, not both"
                )
            return ApiKeys.of_file(self.api_keys_file)
        return None if self.api_key is None else ApiKeys.one(self.api_key)


def serve(
    *,
    engine: EngineOptions = EngineConfig(),
    front: Annotated[FrontOptions, Parameter(name="*", group=Group("Server", sort_key=3))] = FrontOptions(),
) -> None:
    """Serve a model over an OpenAI-compatible HTTP API until SIGTERM or Ctrl-C."""
    keys = front.keys()
    check_binding(front.host, has_keys=keys is not None, allow_unauthenticated=front.allow_unauthenticated)
    engine.policy_spec()  # what is wrong is said before anything starts
    settings = ServeSettings(front.host, front.port, front.shutdown_timeout)
    path = model_on_disk(engine.model)
    link = ProcessLink(replace(engine, model=str(path)))
    link.launch()
    try:
        # By name: this is what the child need not wait for.
        import_module("evenflow.cli.front").serve(
            link, path, settings, front, keys, front.served_model_name or engine.model
        )
    finally:
        link.abandon()

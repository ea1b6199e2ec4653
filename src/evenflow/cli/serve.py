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
from evenflow.engine.child import ProcessLink
from evenflow.engine.config import EngineConfig
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
    admin_key: Annotated[str | None, Parameter(env_var="EVENFLOW_ADMIN_KEY", show_default=False)] = None
    """Key for /admin/scheduling, which shows and changes the scheduling policy; without it nobody may."""
    allow_unauthenticated: Switch = False
    """Let other machines in without a key."""
    shutdown_timeout: float = 30.0
    """Seconds that requests under way may take to finish after SIGTERM or Ctrl-C; a second signal ends them at once."""
    event_log: Path | None = None
    """File for every scheduling event, as JSON lines; one that exists is replaced."""


def serve(
    *,
    engine: EngineOptions = EngineConfig(),
    front: Annotated[FrontOptions, Parameter(name="*", group=Group("Server", sort_key=3))] = FrontOptions(),
) -> None:
    """Serve a model over an OpenAI-compatible HTTP API until SIGTERM or Ctrl-C."""
    check_binding(front.host, front.api_key, front.allow_unauthenticated)
    settings = ServeSettings(front.host, front.port, front.shutdown_timeout)
    path = model_on_disk(engine.model)
    link = ProcessLink(replace(engine, model=str(path)))
    link.launch()
    try:
        # By name: this is what the child need not wait for.
        import_module("evenflow.cli.front").serve(link, path, settings, front, front.served_model_name or engine.model)
    finally:
        link.abandon()

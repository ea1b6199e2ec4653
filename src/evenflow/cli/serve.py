"""`evenflow serve`: put the front together and run it until a signal."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from evenflow.cli.progress import model_on_disk
from evenflow.engine.api import EngineState
from evenflow.engine.child import ProcessLink
from evenflow.engine.client import EngineClient
from evenflow.engine.config import EngineConfig
from evenflow.models.source import load_model_config
from evenflow.models.tokenizer import load_tokenizer
from evenflow.observe.log import EventLogWriter
from evenflow.observe.metrics import Metrics
from evenflow.server.app import create_app
from evenflow.server.serve import ServeSettings, check_binding, leave_now, run


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """Where the server listens and who may use it."""

    host: str = "127.0.0.1"
    """Address to listen on. Other machines can reach anything but loopback, so that needs an API key."""
    port: int = 8000
    """Port to listen on; 0 takes any free one and says which."""
    served_model_name: str | None = None
    """The model name that clients use; the --model value if not given."""
    api_key: Annotated[str | None, Parameter(env_var="EVENFLOW_API_KEY", show_default=False)] = None
    """Key that clients must send as a bearer token. Better in the environment, where other users cannot read it."""
    admin_key: Annotated[str | None, Parameter(env_var="EVENFLOW_ADMIN_KEY", show_default=False)] = None
    """Key for /admin/scheduling, which shows and changes the scheduling policy; without it nobody may."""
    allow_unauthenticated: bool = False
    """Serve other machines without a key."""
    shutdown_timeout: float = 30.0
    """Seconds that running requests may take to finish after SIGTERM."""
    event_log: Path | None = None
    """Write every scheduling event to this file, as JSON lines."""


def serve(
    *,
    engine: Annotated[EngineConfig, Parameter(name="*")] = EngineConfig(),
    front: Annotated[FrontOptions, Parameter(name="*")] = FrontOptions(),
) -> None:
    """Serve a model over an OpenAI-compatible HTTP API until SIGTERM or Ctrl-C."""
    check_binding(front.host, front.api_key, front.allow_unauthenticated)
    settings = ServeSettings(front.host, front.port, front.shutdown_timeout)
    path = model_on_disk(engine.model)
    name = front.served_model_name or engine.model
    load_model_config(path)  # a model that cannot be served is refused now, not once torch is there
    tokenizer = load_tokenizer(path)
    client = EngineClient(ProcessLink(replace(engine, model=str(path))), tokenizer)
    metrics = Metrics(model_name=name)
    client.subscribe(metrics.feed)
    with ExitStack() as stack:
        if front.event_log is not None:
            log = EventLogWriter(front.event_log, failed=lambda error: print(f"evenflow: {error}", file=sys.stderr))
            client.subscribe(stack.enter_context(log).write)

        def render_metrics() -> tuple[bytes, str]:
            if client.state is EngineState.DEAD:
                metrics.engine_died()
            return metrics.render()

        app = create_app(
            client,
            tokenizer,
            served_model_name=name,
            api_key=front.api_key,
            admin_key=front.admin_key,
            render_metrics=render_metrics,
            observe_n=metrics.observe_params_n,
            max_chars_per_token=tokenizer.max_chars_per_token(),
        )

        def announce(url: str) -> None:
            for setting, value in client.facts.settings:
                print(f"  {setting:24} {value}", file=sys.stderr)
            print(f"evenflow serves {name} at {url}", file=sys.stderr, flush=True)

        status = run(client, app, settings, announce)
    leave_now(status)

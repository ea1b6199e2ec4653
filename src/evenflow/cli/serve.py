"""`evenflow serve`: put the front together and run it until a signal."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from evenflow.cli.options import EngineOptions, Switch
from evenflow.cli.progress import model_on_disk
from evenflow.core.policy.presets import PRESETS
from evenflow.engine.api import EngineState
from evenflow.engine.child import ProcessLink
from evenflow.engine.client import EngineClient
from evenflow.engine.config import EngineConfig
from evenflow.models.source import load_model_config
from evenflow.models.tokenizer import load_tokenizer
from evenflow.observe.log import EventLogWriter
from evenflow.observe.metrics import Metrics
from evenflow.server.app import create_app
from evenflow.server.dashboard import Dashboard
from evenflow.server.observing import Observer
from evenflow.server.serve import ServeSettings, check_binding, leave_now, run
from evenflow.server.shutdown import Shutdown


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
    name = front.served_model_name or engine.model
    load_model_config(path)  # a model that cannot be served is refused now, not once torch is there
    tokenizer = load_tokenizer(path)
    print(f"loading {path}", file=sys.stderr, flush=True)
    client = EngineClient(ProcessLink(replace(engine, model=str(path))), tokenizer)
    metrics = Metrics(model_name=name)
    observer = Observer()
    client.subscribe(metrics.feed)
    client.subscribe(observer.feed)
    dashboard = Dashboard(observer.events_since, lambda: client.state.value, list(PRESETS))
    with ExitStack() as stack:
        if front.event_log is not None:
            log = EventLogWriter(front.event_log, failed=lambda error: print(f"evenflow: {error}", file=sys.stderr))
            client.subscribe(stack.enter_context(log).write)

        def render_metrics() -> tuple[bytes, str]:
            if client.state is EngineState.DEAD:
                metrics.engine_died()
            return metrics.render()

        shutdown = Shutdown()
        app = create_app(
            client,
            tokenizer,
            shutdown=shutdown,
            served_model_name=name,
            api_key=front.api_key,
            admin_key=front.admin_key,
            render_metrics=render_metrics,
            observe_n=metrics.observe_params_n,
            max_chars_per_token=tokenizer.max_chars_per_token(),
            extra_routes=[*observer.routes(), *dashboard.routes()],
        )

        def announce(url: str) -> None:
            for setting, value in client.facts.settings:
                print(f"  {setting:24} {value}", file=sys.stderr)
            print(f"evenflow serves {name} at {url}", file=sys.stderr, flush=True)

        shutdown.subscribe(lambda: say_goodbye(client.num_streams, front.shutdown_timeout))
        status = run(client, app, settings, announce, shutdown)
    leave_now(status)


def say_goodbye(num_streams: int, shutdown_timeout: float) -> None:
    match num_streams:
        case 0:
            streams = "no stream is open"
        case 1:
            streams = "1 stream is open"
        case _:
            streams = f"{num_streams} streams are open"
    patience = f"; up to {shutdown_timeout:g} s to finish, a second signal stops at once" if num_streams else ""
    print(f"evenflow is stopping: {streams}{patience}", file=sys.stderr, flush=True)

"""The front of a server: HTTP, metrics, pages and event log around the link to an engine, until a signal."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from evenflow.cli.serve import FrontOptions
from evenflow.core.policy.presets import PRESETS
from evenflow.engine.announcement import announcement
from evenflow.engine.api import EngineState
from evenflow.engine.client import EngineClient, Link
from evenflow.engine.config import parse_bytes
from evenflow.models.source import load_model_config
from evenflow.models.tokenizer import load_tokenizer
from evenflow.observe.fold import SpanFold
from evenflow.observe.log import EventLogWriter, LogError
from evenflow.observe.log_parts import Rotation
from evenflow.observe.metrics import Metrics
from evenflow.server.api_keys import ApiKeys
from evenflow.server.app import create_app
from evenflow.server.binding import ServeSettings
from evenflow.server.dashboard import Dashboard
from evenflow.server.observing import Observer
from evenflow.server.serve import leave_now, run
from evenflow.server.shutdown import Shutdown


def serve(
    link: Link, path: Path, settings: ServeSettings, front: FrontOptions, keys: ApiKeys | None, name: str
) -> NoReturn:
    """`path` is the model's, `name` what clients call it. Ends the process, or raises before it comes to serving."""
    load_model_config(path)  # a model that cannot be served is refused now, not once torch is there
    tokenizer = load_tokenizer(path)
    spans, shutdown = SpanFold(), Shutdown()
    metrics = Metrics(model_name=name, spans=spans)

    def lost(reason: str, num_streams: int) -> None:
        metrics.engine_died(num_streams)
        _say_lost(reason, num_streams)

    client = EngineClient(link, tokenizer, lost=lost)
    observer = Observer(spans=spans, metrics=metrics, engine_is_gone=lambda: client.state is EngineState.DEAD)
    client.subscribe(observer.feed)
    dashboard = Dashboard(observer.events_since, lambda: client.state.value, list(PRESETS))
    with ExitStack() as stack:
        if front.event_log is not None:
            log = EventLogWriter(front.event_log, rotation=_rotation(front), failed=_say_unlogged)
            client.subscribe(stack.enter_context(log).write)

        app = create_app(
            client,
            tokenizer,
            shutdown=shutdown,
            served_model_name=name,
            api_keys=keys,
            admin_key=front.admin_key,
            render_metrics=metrics.render,
            observe_n=metrics.observe_params_n,
            max_chars_per_token=tokenizer.max_chars_per_token(),
            extra_routes=[*observer.routes(), *dashboard.routes()],
        )
        shutdown.subscribe(lambda: _say_goodbye(client.num_streams, front.shutdown_timeout))
        status = run(
            client,
            app,
            settings,
            lambda url: _announce(client, name, url),
            shutdown,
            bound=lambda: _say(f"loading {path}"),
        )
    leave_now(status)


def _rotation(front: FrontOptions) -> Rotation | None:
    if front.event_log_max_size is None:
        return None
    return Rotation(parse_bytes("event_log_max_size", front.event_log_max_size), front.event_log_keep)


def _announce(client: EngineClient, name: str, url: str) -> None:
    for line in announcement(client.facts):
        _say(line)
    _say(f"evenflow serves {name} at {url}")


def _say_goodbye(num_streams: int, timeout_seconds: float) -> None:
    match num_streams:
        case 0:
            streams, patience = "no stream is open", ""
        case count:
            streams = "1 stream is open" if count == 1 else f"{count} streams are open"
            patience = f"; up to {timeout_seconds:g} s to finish, a second signal stops at once"
    _say(f"evenflow is stopping: {streams}{patience}")


def _say_lost(reason: str, num_streams: int) -> None:
    ended = "" if not num_streams else f" {num_streams} under way ended with an error;"
    _say(
        f"evenflow: {reason};{ended} every request is answered with 503 from now on, as is /health. Restart the server"
    )


def _say_unlogged(error: LogError) -> None:
    _say(f"evenflow: {error}; the log ends there, and serving goes on without it")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

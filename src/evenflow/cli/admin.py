"""`evenflow admin`: the command-line twin of /admin/scheduling."""

import http.client
import json as json_module
import time
import urllib.error
import urllib.request
from contextlib import closing
from typing import Annotated, Any, Protocol

import msgspec
from cyclopts import App, Parameter
from rich.table import Table

from evenflow.cli.bounds_table import bounds_table
from evenflow.cli.terminal import Terminal
from evenflow.core.errors import EvenflowError
from evenflow.core.policy.bound import Bound
from evenflow.engine.policy_choice import table_of

app = App(name="admin", help="Show or change the scheduling policy of a running server.")

_SECONDS = 30.0
_MAX_ANSWER_BYTES = 8 << 20
_PIECE_BYTES = 1 << 16

Url = Annotated[str, Parameter(help="Where the server listens.")]
Key = Annotated[
    str | None,
    Parameter(
        env_var="EVENFLOW_ADMIN_KEY", show_default=False, help="The server's admin key; better in the environment."
    ),
]


class _Scheduling(msgspec.Struct):
    """What is read of an answer; more may be in it."""

    policy: dict[str, object]
    bounds: list[Bound]


class AdminError(EvenflowError):
    """The server refused, or is not there."""


@app.command
def show(*, url: Url = "http://127.0.0.1:8000", admin_key: Key = None, json: bool = False) -> None:
    """Show the policy that holds now and its bounds.

    Parameters
    ----------
    json
        Print the server's answer.
    """
    _print(_ask("GET", url, admin_key, None), json)


@app.command(name="set")
def change(
    *settings: str,
    preset: str | None = None,
    url: Url = "http://127.0.0.1:8000",
    admin_key: Key = None,
    json: bool = False,
) -> None:
    """Change the policy between two steps: all of it or nothing, and no request is lost. Prints what changed.

    Parameters
    ----------
    settings
        Each as name=value, such as order=priority or classes.batch.max_seats=0.5.
    preset
        Start from this preset instead of from what holds now.
    json
        Print the server's answer.
    """
    table = table_of(settings)
    if preset is not None:
        table["preset"] = preset
    if not table:
        raise AdminError("nothing to change; give --preset NAME or settings such as order=priority")
    before = _ask("GET", url, admin_key, None)
    after = _ask("PATCH", url, admin_key, table)
    if json:
        print(json_module.dumps(after))
    else:
        _print_change(before, after)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


class _Readable(Protocol):
    """An answer, good or bad."""

    def read1(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


# Any: the answer is JSON.
def _ask(method: str, url: str, key: str | None, body: dict[str, object] | None) -> dict[str, Any]:
    if not url.startswith(("http://", "https://")):
        raise AdminError(f"--url must begin with http:// or https://, not {url!r}")
    if key is not None and not (key.isascii() and key.isprintable()):  # which is not shown
        raise AdminError("the admin key cannot be sent: only printable ASCII can, on one line")
    try:
        with closing(_opened(method, url, key, body)) as answer:
            return _object(_content(answer, url), url)
    except urllib.error.HTTPError as error:
        with closing(error):
            raise AdminError(_refusal(_content(error, url), error.code, url)) from error
    # ValueError: what cannot be an address, or a key.
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise AdminError(f"cannot reach {url}: {getattr(error, 'reason', error)}") from error


def _opened(method: str, url: str, key: str | None, body: dict[str, object] | None) -> _Readable:
    request = urllib.request.Request(
        url.rstrip("/") + "/admin/scheduling",
        data=None if body is None else json_module.dumps(body).encode(),
        headers={"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})},
        method=method,
    )
    # The key is for this server: it is not carried to where another answer points.
    answer: _Readable = urllib.request.build_opener(_NoRedirects).open(request, timeout=_SECONDS)
    return answer


def _content(answer: _Readable, url: str) -> bytes:
    """A server may send byte by byte, or without an end."""
    content = bytearray()
    end = time.monotonic() + _SECONDS
    while piece := answer.read1(_PIECE_BYTES):
        content += piece
        if len(content) > _MAX_ANSWER_BYTES or time.monotonic() > end:
            raise AdminError(f"{url} sends an answer without an end; is it an evenflow server?")
    return bytes(content)


def _object(body: bytes, url: str) -> dict[str, Any]:
    try:
        answer = json_module.loads(body)
        msgspec.convert(answer, type=_Scheduling)
    except (ValueError, RecursionError) as error:
        raise AdminError(f"{url} did not answer as an evenflow server does ({error}); is it one?") from error
    assert isinstance(answer, dict)
    return answer


def _refusal(body: bytes, status: int, url: str) -> str:
    try:
        return str(json_module.loads(body)["error"]["message"])
    except (ValueError, RecursionError, LookupError, TypeError):
        return f"{url} answered {status}, and not as an evenflow server does; is it one?"


def _print(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json_module.dumps(answer))
        return
    console = Terminal()
    policy = Table(box=None, header_style="bold")
    policy.add_column("setting", no_wrap=True)
    policy.add_column("value")
    for name, value in answer["policy"].items():
        policy.add_row(name, _text(value))
    console.print(policy)
    console.print()
    console.print(bounds_table(Bound(**bound) for bound in answer["bounds"]))


def _print_change(before: dict[str, Any], after: dict[str, Any]) -> None:
    console = Terminal()
    old, new = before["policy"], after["policy"]
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if not changed:
        console.print("Nothing changed: that is the policy already.")
        return
    policy = Table(box=None, header_style="bold")
    policy.add_column("setting", no_wrap=True)
    policy.add_column("before")
    policy.add_column("now")
    for name in changed:
        policy.add_row(name, _text(old.get(name)), _text(new.get(name)))
    console.print(policy)
    bounds = [Bound(**bound) for bound in after["bounds"] if bound not in before["bounds"]]
    if bounds:
        console.print("\nBounds that changed:")
        console.print(bounds_table(bounds))


# Any: as it was in JSON.
def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_module.dumps(value)

"""`evenflow admin`: the command-line twin of /admin/scheduling."""

import json as json_module
import urllib.error
import urllib.request
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from evenflow.cli.bounds_table import bounds_table
from evenflow.core.errors import EvenflowError
from evenflow.core.policy.bound import Bound
from evenflow.engine.policy_choice import table_of

app = App(name="admin", help="Show or change the scheduling policy of a running server.")

_SECONDS = 30.0
_MAX_ANSWER_BYTES = 8 << 20

Url = Annotated[str, Parameter(help="Where the server listens.")]
Key = Annotated[
    str | None,
    Parameter(
        env_var="EVENFLOW_ADMIN_KEY", show_default=False, help="The server's admin key; better in the environment."
    ),
]


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


# Any: the answer is JSON.
def _ask(method: str, url: str, key: str | None, body: dict[str, object] | None) -> dict[str, Any]:
    if not url.startswith(("http://", "https://")):
        raise AdminError(f"--url must begin with http:// or https://, not {url!r}")
    request = urllib.request.Request(
        url.rstrip("/") + "/admin/scheduling",
        data=None if body is None else json_module.dumps(body).encode(),
        headers={"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return _object(answer.read(_MAX_ANSWER_BYTES), url)
    except urllib.error.HTTPError as error:
        said = _object(error.read(_MAX_ANSWER_BYTES), url).get("error", {})
        raise AdminError(str(said.get("message", f"{url} answered {error.code}"))) from error
    except OSError as error:
        raise AdminError(f"cannot reach {url}: {getattr(error, 'reason', error)}") from error


def _object(body: bytes, url: str) -> dict[str, Any]:
    try:
        answer = json_module.loads(body)
    except ValueError as error:
        raise AdminError(f"{url} did not answer with JSON; is it an evenflow server?") from error
    if not isinstance(answer, dict):
        raise AdminError(f"{url} did not answer as an evenflow server does")
    return answer


def _print(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json_module.dumps(answer))
        return
    console = Console()
    policy = Table(box=None, header_style="bold")
    policy.add_column("setting", no_wrap=True)
    policy.add_column("value")
    for name, value in answer["policy"].items():
        policy.add_row(name, _text(value))
    console.print(policy)
    console.print()
    console.print(bounds_table(Bound(**bound) for bound in answer["bounds"]))


def _print_change(before: dict[str, Any], after: dict[str, Any]) -> None:
    console = Console()
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

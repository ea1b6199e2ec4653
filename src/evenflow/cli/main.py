"""The command line: one app, one exit-code rule.

0  done      1  something of ours failed      2  what was asked for cannot be done; one sentence says why
"""

import sys

from cyclopts import App, CycloptsError

from evenflow.cli import bench, demo, environment, model, serve
from evenflow.core.errors import EvenflowError

app = App(
    name="evenflow",
    help="LLM inference server with continuous batching that you can see, explain, replay, simulate and tune.",
    version_flags=["--version"],
)
app.command(serve.serve)
app.command(demo.demo)
app.command(model.app)
app.command(bench.app)
app.command(environment.env)


def main(arguments: list[str] | None = None) -> None:
    try:
        app(sys.argv[1:] if arguments is None else arguments, exit_on_error=False, print_error=True)
    except CycloptsError:
        sys.exit(2)
    except EvenflowError as error:
        print(f"evenflow: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)

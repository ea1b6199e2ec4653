"""The command line: one app, one exit-code rule.

0  done      1  something of ours failed      2  what was asked for cannot be done; one sentence says why
"""

import sys

from cyclopts import App, CycloptsError, Parameter

from evenflow.cli.config_file import from_config_file
from evenflow.cli.help_text import Flowing
from evenflow.cli.terminal import sentence
from evenflow.core.errors import EvenflowError

app = App(
    name="evenflow",
    help="LLM inference server with continuous batching: each iteration decides anew which requests get tokens."
    "\n\nNew here? `evenflow demo` shows it at work, and fetches the small model that it needs by itself.",
    help_format="plaintext",
    help_formatter=Flowing(),
    default_parameter=Parameter(negative_iterable=()),
    version_flags=["--version"],
    config=from_config_file,
)
# By name: a command's modules are imported when it is called, so that `serve` does not wait for what `bench` needs.
for _name, _where, _help in (
    ("serve", "evenflow.cli.serve:serve", "Serve a model over an OpenAI-compatible HTTP API until SIGTERM or Ctrl-C."),
    (
        "demo",
        "evenflow.cli.demo:demo",
        "Serve a model, send it requests with the lengths and times of real traffic, and watch them share iterations.",
    ),
    (
        "replay",
        "evenflow.cli.replay:replay",
        "Replay a trace of real traffic against any OpenAI-compatible server and measure it.\n\n"
        "Writes a result file and a page. The status is 1 if the figures are not about the load that was asked for.",
    ),
    (
        "simulate",
        "evenflow.cli.simulate:simulate",
        "Run a trace through the scheduler on a virtual clock, with the result of a replay.",
    ),
    ("calibrate", "evenflow.cli.calibrate:calibrate", "Fit what a step costs on this machine, to simulate with."),
    ("validate", "evenflow.cli.validate:validate", "Hold a simulation against the event log of the live run."),
    ("costs", "evenflow.cli.costs:app", "List the ready-made step costs, what each is and how good."),
    ("compare", "evenflow.cli.compare:compare", "Compare results of replays: what differs by more than chance."),
    (
        "tune",
        "evenflow.cli.tune:tune",
        "Find the configuration that serves a trace best within limits on its latencies.\n\n"
        "Simulates a grid, confirms the best ones live, and writes a configuration to serve with and a page that says "
        "why. The status is 1 if nothing keeps the limits.",
    ),
    (
        "study",
        "evenflow.cli.study:study",
        "Ten experiments on what scheduling does, each a table, a plot and a sentence that is checked.",
    ),
    ("model", "evenflow.cli.model:app", "Fetch and list models."),
    ("explain", "evenflow.cli.explain:explain", "Tell where one request's time went, from an event log."),
    ("log", "evenflow.cli.log:log", "Show what event logs hold, or export what is asked for to JSONL, CSV or Parquet."),
    (
        "diagnose",
        "evenflow.cli.diagnose:diagnose",
        "Say what a run suffers from, from an event log or a result, and which settings would help.",
    ),
    ("policies", "evenflow.cli.policies:policies", "List the scheduling policies, and what each guarantees."),
    ("admin", "evenflow.cli.admin:app", "Show or change the scheduling policy of a running server."),
    ("bench", "evenflow.cli.bench:app", "Measure evenflow on this machine."),
    (
        "env",
        "evenflow.cli.environment:env",
        "Show the machine, the versions, and the kernels that were chosen and why.",
    ),
):
    app.command(_where, name=_name, help=_help)


def main(arguments: list[str] | None = None) -> None:
    try:
        app(sys.argv[1:] if arguments is None else arguments, exit_on_error=False, print_error=True)
    except CycloptsError:
        sys.exit(2)
    except EvenflowError as error:
        print(f"evenflow: {sentence(str(error))}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)

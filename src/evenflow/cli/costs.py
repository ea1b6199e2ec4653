"""`evenflow costs`: step costs that nobody need measure: ready-made ones, published timings, a device's data sheet."""

from pathlib import Path

from cyclopts import App
from cyclopts.types import PositiveInt
from rich.table import Table

from evenflow.cli.terminal import Terminal
from evenflow.core.errors import ConfigError
from evenflow.models.source import load_model_config
from evenflow.simulate.catalogue import find_cost, ready_made
from evenflow.simulate.cost import StepCost
from evenflow.simulate.cost_file import save_cost
from evenflow.simulate.published import cost_of_timings, read_timings
from evenflow.simulate.roofline import roofline_cost

app = App(name="costs", help="Step costs to simulate with, where no engine can be measured.")


@app.default
def costs() -> None:
    """List the ready-made costs: what each is, and how far off it is on timings that its fit has not seen."""
    table = Table("name", "from", "off by", "P95", "total", "KV tokens", box=None)
    table.columns[0].no_wrap = True
    for name in ready_made():
        table.add_row(name, *_row(find_cost(name)))
    Terminal().print(table)


def _row(cost: StepCost) -> tuple[str, ...]:
    quality = cost.qualities[0] if cost.qualities else None
    known = quality is not None and quality.mape is not None
    said = (
        (f"{quality.mape:.1%}", f"{quality.p95:.1%}", f"{quality.bias:+.1%}") if known and quality else ("-", "-", "-")
    )
    return cost.identity.kind.name.lower(), *said, str(cost.kv_tokens or "-")


@app.command
def published(timings: Path, *, out: Path = Path(".")) -> None:
    """Fit costs to Splitwise's published timings, one file for each machine and model.

    Parameters
    ----------
    timings
        The file perf_model.csv of the Splitwise simulator, or its .gz.
    out
        Folder for the cost files.
    """
    if not out.is_dir():
        raise ConfigError(f"out must be a folder that exists; {out} does not")
    console = Terminal()
    table = Table("file", "from", "off by", "P95", "total", "KV tokens", box=None)
    for setup, samples in read_timings(timings).items():
        cost = cost_of_timings(setup, samples)
        path = out / f"{setup.name}.json"
        save_cost(path, cost)
        table.add_row(str(path), *_row(cost))
    console.print(table)


@app.command
def roofline(model: Path, *, device: str, devices: PositiveInt = 1, out: Path = Path("cost.json")) -> None:
    """Compute a cost from a device's data sheet and a model's config.json.

    Parameters
    ----------
    model
        Folder with the model's config.json, or a .gguf file; the weights need not be there.
    device
        Name of the device, such as h100-80gb; a wrong one is answered with all that are known.
    devices
        How many of them share every layer.
    out
        Where the cost goes.
    """
    cost = roofline_cost(device, load_model_config(model), devices=devices)
    save_cost(out, cost)
    Terminal().print(f"{out}: {cost.identity.description}; {'; '.join(cost.notes)}", soft_wrap=True)

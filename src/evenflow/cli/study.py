"""`evenflow study`: ten experiments on what scheduling does."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

from cyclopts.types import PositiveFloat
from rich.console import Console
from rich.table import Table

from evenflow.cli.options import EngineOptions, Switch, refuse
from evenflow.cli.progress import model_on_disk, say, saying
from evenflow.cli.signals import ending_in_order
from evenflow.cli.terminal import Terminal
from evenflow.core.errors import ConfigError
from evenflow.core.policy.spelling import nearest
from evenflow.engine.config import EngineConfig
from evenflow.models.tokenizer import load_tokenizer
from evenflow.simulate.catalogue import find_cost
from evenflow.study.document import write_document
from evenflow.study.experiment import Experiment, Finding
from evenflow.study.lab import Lab
from evenflow.study.live_lab import LiveLab
from evenflow.study.simulated_lab import SimulatedLab
from evenflow.study.table import EXPERIMENTS

DEFAULT_COST = "h100-80gb-x4-llama2-70b"


def study(
    *names: str,
    cost: str = DEFAULT_COST,
    live: Switch = False,
    size: PositiveFloat = 1.0,
    out: Path | None = None,
    engine: EngineOptions = EngineConfig(),
) -> None:
    """Ten experiments on what scheduling does, each a table, a plot and a sentence that is checked.

    The status is 1 if the numbers of an experiment do not bear its claim out, or it did not come to what it studies.

    Parameters
    ----------
    names
        Only these experiments; all of them if none is named.
    cost
        Cost file of the device to simulate, or one of `evenflow costs`.
    live
        Run on the real engine on this machine, as far as it can: minutes for each experiment.
    size
        Factor on the number of requests of every load.
    out
        Folder for study.md and its plots.
    """
    chosen = _chosen(names)
    lab: Lab
    doubts: list[str] = []
    console, stage = Terminal(), Terminal(stderr=True)
    if live:
        if cost != DEFAULT_COST:
            raise ConfigError("a live study has no cost; leave --cost out")
        refuse(engine, "max_num_seqs", "max_num_batched_tokens", "policy", "policy_set", "max_model_len")
        path = model_on_disk(engine.model)
        if engine.kv_memory is None:
            engine = replace(engine, kv_memory="256MiB")
        engine = replace(engine, model=str(path), prefix_caching=False)
        lab = LiveLab(engine, load_tokenizer(path), size, warn=doubts.append)
    else:
        given = [each.name.replace("_", "-") for each in fields(engine) if getattr(engine, each.name) != each.default]
        if given:
            raise ConfigError(f"--{given[0]} is of a real engine; add --live to run on one, or leave it out")
        lab = SimulatedLab(find_cost(cost), size=size)
    done: list[tuple[Experiment, Finding]] = []
    with ending_in_order():
        for experiment in chosen:
            if live and not experiment.live:
                say(stage, f"{experiment.name} needs hardware of its choice; it is simulated only")
                continue
            with saying(stage, f"{experiment.name}: {experiment.question}") as tell:
                finding = experiment.measure(_telling(lab, experiment.name, tell))
            if doubts:
                say(
                    stage,
                    f"{experiment.name}: {len(doubts)} runs were not quite the load that was asked for: {doubts[0]}",
                )
                doubts.clear()
            done.append((experiment, finding))
            _show(experiment, finding, console)
    if out is not None:
        say(stage, f"{write_document(out, lab.name, done)} has it all")
    if not all(finding.holds for _, finding in done):
        sys.exit(1)


def _telling(lab: Lab, name: str, tell: Callable[[str], None]) -> Lab:
    """Simulated runs take no time worth a word."""
    return replace(lab, tell=lambda words: tell(f"{name}: {words}")) if isinstance(lab, LiveLab) else lab


def _chosen(names: Sequence[str]) -> list[Experiment]:
    known = [experiment.name for experiment in EXPERIMENTS]
    for name in names:
        if name not in known:
            close = nearest(name, known)
            meant = f"did you mean {close}? " if close in known else ""
            raise ConfigError(f"there is no experiment {name!r}; {meant}They are {', '.join(known)}")
    return [experiment for experiment in EXPERIMENTS if not names or experiment.name in names]


def _show(experiment: Experiment, finding: Finding, console: Console) -> None:
    console.print(f"\n{experiment.question}", style="bold")
    table = Table(*finding.columns, box=None, caption=finding.setting, caption_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in finding.rows:
        table.add_row(*row)
    console.print(table)
    console.print(finding.sentence, style="green" if finding.holds else "yellow", soft_wrap=True)
    if finding.caveat is not None:
        console.print(finding.caveat, style="yellow")

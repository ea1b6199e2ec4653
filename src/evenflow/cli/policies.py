"""`evenflow policies`: the presets and pieces there are, and what a policy promises in an engine of given size."""

import json as json_module
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evenflow.cli.bounds_table import bounds_table
from evenflow.cli.terminal import Terminal
from evenflow.core.config import SchedulerConfig
from evenflow.core.policy.bound import Bound
from evenflow.core.policy.presets import DEFAULT_PRESET, PRESETS
from evenflow.core.policy.registry import PIECES, bounds_of
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.policy.table import policy_to_table, printable
from evenflow.engine.policy_choice import choose_policy


def policies(
    policy: str | None = None,
    /,
    *,
    settings: Annotated[tuple[str, ...], Parameter(name="--set")] = (),
    pieces: bool = False,
    max_num_seqs: int = 128,
    max_num_batched_tokens: int = 512,
    max_model_len: int = 8192,
    kv_tokens: int = 131072,
    json: bool = False,
) -> None:
    """List the scheduling policies; or explain one: its choices and the bounds that it guarantees.

    Parameters
    ----------
    policy
        A preset, or a .toml or .json file; all presets are listed if not given.
    settings
        Lay name=value over the policy before it is explained; may be given several times.
    pieces
        List every piece that a policy may choose, and the settings that each reads.
    max_num_seqs
        Compute bounds for an engine of so many seats.
    max_num_batched_tokens
        ... and so many tokens in a step.
    max_model_len
        ... and requests of at most so many tokens.
    kv_tokens
        ... and a KV cache for so many tokens.
    json
        Print JSON.
    """
    console = Terminal()
    if pieces:
        _list_pieces(console)
        return
    if policy is None:
        _list_presets(console, json)
        return
    spec = choose_policy(policy, settings)
    config = SchedulerConfig(max_num_seqs, max_model_len, 2, max_num_batched_tokens=max_num_batched_tokens)
    bounds = bounds_of(spec, config, num_blocks=max(1, kv_tokens // 32), block_size=32)
    if json:
        print(json_module.dumps({"policy": policy_to_table(spec), "bounds": [asdict(bound) for bound in bounds]}))
        return
    _explain(console, policy, spec, bounds)


def _list_presets(console: Console, json: bool) -> None:
    if json:
        print(json_module.dumps({name: {"sentence": p.sentence} for name, p in PRESETS.items()}))
        return
    table = Table(box=None, header_style="bold")
    table.add_column("policy", no_wrap=True)
    table.add_column("what it does")
    for name, preset in PRESETS.items():
        table.add_row(
            Text(name, "bold" if name == DEFAULT_PRESET else ""),
            preset.sentence + (" (default)" if name == DEFAULT_PRESET else ""),
        )
    console.print(table)
    console.print("\n`evenflow policies NAME` tells its choices and bounds; `evenflow policies --pieces` the pieces.")


def _list_pieces(console: Console) -> None:
    for slot, choices in PIECES.items():
        table = Table(box=None, show_header=False, title=slot, title_justify="left", title_style="bold")
        table.add_column(no_wrap=True)
        table.add_column()
        for name, piece in choices.items():
            reads = f" {', '.join(piece.fields)}" if piece.fields else ""
            table.add_row(f"  {name}", Text(piece.sentence).append(reads, "dim"))
        console.print(table)


def _explain(console: Console, name: str, spec: PolicySpec, bounds: tuple[Bound, ...]) -> None:
    if name in PRESETS:
        console.print(Text(name, "bold").append(f": {PRESETS[name].sentence}\n", "not bold"))
    usual = dict(printable(PolicySpec()))
    effective = _effective(spec)
    choices = Table(box=None, header_style="bold")
    choices.add_column("setting", no_wrap=True)
    choices.add_column("value")
    for setting, value in printable(spec):
        if setting in PIECES or value != usual.get(setting) or setting in effective:
            choices.add_row(setting, value)
    console.print(choices)
    console.print()
    console.print(bounds_table(bounds))


def _effective(spec: PolicySpec) -> set[str]:
    """Settings that the chosen pieces read."""
    return {field for slot, choices in PIECES.items() for field in choices[getattr(spec, slot)].fields}

"""Who takes part, read from a table in TOML: commands with names in braces that this machine fills in.

A contender is an engine at one precision. It is run in one of two ways, and the table may have both:

    piped     a driver process that is given requests as they are and runs them through the engine's Python interface
    served    an HTTP server with /v1/completions

The table that comes with evenflow (contenders.toml) names nothing of any machine; a peer that is not where the table
expects it takes no part, and the report says what is missing.
"""

import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from evenflow.core.errors import ConfigError
from evenflow.files.small_file import read_small_text

OWN_ENGINE = "evenflow"
STANDARD_TABLE = Path(__file__).with_name("contenders.toml")
MAX_TABLE_BYTES = 2**20
_INSTALLING = "docs/benchmarks.md, section Peers, says how to install it"


class Precision(Enum):
    BF16 = "bf16"
    INT8 = "int8"
    FOUR_BIT = "4-bit"


class Workload(Enum):
    W1 = "w1"
    W2 = "w2"
    W3 = "w3"
    LONG = "long"
    CONTEXT = "context"


@dataclass(frozen=True, slots=True)
class Launch:
    """How a process is started. Only {port} is still open."""

    command: tuple[str, ...]
    environment: Mapping[str, str]

    def at_port(self, port: int) -> "Launch":
        return Launch(tuple(word.replace("{port}", str(port)) for word in self.command), self.environment)


@dataclass(frozen=True, slots=True)
class Contender:
    """`ready` is the path that answers 200 once the server takes requests; `most_requests` bounds W1."""

    name: str
    engine: str
    precision: Precision
    workloads: frozenset[Workload]
    piped: Launch | None
    served: Launch | None
    ready: str
    pin_server_threads: bool
    most_requests: int | None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A contender of the table that takes no part; `reason` is one sentence."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Place:
    """What the names in braces stand for here."""

    peers: Path | None
    model: Path
    cpus: tuple[int, ...]

    def names(self) -> dict[str, str]:
        return {
            "peers": "{peers}" if self.peers is None else str(self.peers.absolute()),
            "model": str(self.model),
            "threads": str(len(self.cpus)),
            "cpus": ",".join(map(str, self.cpus)),
            "python": sys.executable,
            "drivers": str(Path(__file__).parent),
            "port": "{port}",
        }


_Words = Annotated[list[str], Meta(min_length=1, max_length=200)]
_Variables = dict[str, str]


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    engine: str
    precision: Precision
    workloads: list[Workload]
    needs: list[str] = []
    piped: _Words | None = None
    served: _Words | None = None
    ready: Annotated[str, Meta(pattern="^/")] = "/health"
    pin_server_threads: bool = False
    most_requests: Annotated[int, Meta(ge=1)] | None = None
    environment: _Variables = {}
    piped_environment: _Variables = {}
    served_environment: _Variables = {}


def read_contenders(table: Path, place: Place) -> tuple[list[Contender], list[LeftOut]]:
    """All of the table, in its order: those that can run here, and those that cannot. Raises ConfigError."""
    contenders: list[Contender] = []
    left_out: list[LeftOut] = []
    for name, row in _rows(table).items():
        names = place.names()
        try:
            reason = _what_is_missing(row, names, place)
            if reason is not None:
                left_out.append(LeftOut(name, reason))
                continue
            contenders.append(_contender(name, row, names))
        except (KeyError, ValueError, IndexError) as error:
            known = ", ".join(f"{{{each}}}" for each in names)
            raise ConfigError(f"{table}, [{name}]: {error} cannot be filled in; there are {known}") from None
    return contenders, left_out


def _rows(table: Path) -> dict[str, _Row]:
    try:
        rows = msgspec.convert(tomllib.loads(read_small_text(table, MAX_TABLE_BYTES)), type=dict[str, _Row])
    except OSError as error:
        raise ConfigError(f"cannot read the table {table}: {error.strerror}") from error
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise ConfigError(f"{table} is not a table of contenders: {error}") from error
    for name, row in rows.items():
        if row.piped is None and row.served is None:
            raise ConfigError(f"{table}, [{name}]: give it a command, piped or served")
        if Workload.W3 in row.workloads and row.served is None:
            raise ConfigError(f"{table}, [{name}]: w3 goes through HTTP; give it a command as served")
    return rows


def _what_is_missing(row: _Row, names: Mapping[str, str], place: Place) -> str | None:
    if place.peers is None and any("{peers}" in text for text in (*row.needs, *(row.piped or ()), *(row.served or ()))):
        return f"no folder of peers was given (--peers-dir, or EVENFLOW_PEERS_DIR); {_INSTALLING}"
    for need in row.needs:
        if not Path(need.format_map(names)).exists():
            return f"{need.format_map(names)} is not there; {_INSTALLING}"
    return None


def _contender(name: str, row: _Row, names: Mapping[str, str]) -> Contender:
    own = row.engine == OWN_ENGINE

    def launch(words: Sequence[str] | None, more: _Variables) -> Launch | None:
        if words is None:
            return None
        variables = {key: text.format_map(names) for key, text in (row.environment | more).items()}
        command = tuple(word.format_map(names) for word in words)
        return Launch(command, _environment(names["threads"], own) | variables)

    return Contender(
        name=name,
        engine=row.engine,
        precision=row.precision,
        workloads=frozenset(row.workloads),
        piped=launch(row.piped, row.piped_environment),
        served=launch(row.served, row.served_environment),
        ready=row.ready,
        pin_server_threads=row.pin_server_threads,
        most_requests=row.most_requests,
    )


def _environment(threads: str, own: bool) -> dict[str, str]:
    """Ours, without what would lead a peer's interpreter to our packages, and without a look at any hub."""
    kept = {key: value for key, value in os.environ.items() if own or not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return kept | {"OMP_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

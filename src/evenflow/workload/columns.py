"""Columns that the user names: for files of no known format, and for what a known format does not look at.

--columns arrival=ts,input=prompt_len,output=gen_len,class=tier,tenant=customer
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from evenflow.core.errors import ConfigError
from evenflow.workload.rows import Row
from evenflow.workload.trace import TraceRequest

# In seconds.
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Each is the name of a column in the file."""

    arrival: str | None = None
    input: str | None = None
    output: str | None = None
    service_class: str | None = None
    tenant: str | None = None
    session: str | None = None

    @property
    def whole(self) -> bool:
        """Enough to read a file of any format."""
        return self.input is not None and self.output is not None

    @property
    def used(self) -> frozenset[str]:
        names = (getattr(self, field.name) for field in fields(self))
        return frozenset(name for name in names if name is not None)

    def labelled(self, request: TraceRequest, row: Row) -> TraceRequest:
        """With the class, tenant and session that the row gives."""
        changes = {
            field: row.text(column)
            for field, column in (
                ("service_class", self.service_class),
                ("tenant", self.tenant),
                ("session", self.session),
            )
            if column is not None and row.has(column)
        }
        return replace(request, **changes) if changes else request  # type: ignore[arg-type]  # all three are texts


_KEYS = {"class": "service_class"}


def parse_columns(text: str) -> ColumnNames:
    """`arrival=ts,input=a,...`"""
    known = [field.name for field in fields(ColumnNames)]
    names: dict[str, str] = {}
    for part in text.split(","):
        key, equals, column = (piece.strip() for piece in part.partition("="))
        key = _KEYS.get(key, key)
        if not equals or not column or key not in known or key in names:
            keys = ", ".join(["class" if name == "service_class" else name for name in known])
            raise ConfigError(f"columns takes KEY=COLUMN,KEY=COLUMN,... with each of {keys} at most once, not {part!r}")
        names[key] = column
    return ColumnNames(**names)


def seconds_in(unit: str) -> float:
    if unit not in UNITS:
        raise ConfigError(f"time_unit must be one of {', '.join(UNITS)}, not {unit!r}")
    return UNITS[unit]


def numeric_clock(column: str, unit: str) -> Callable[[Row], float]:
    factor = seconds_in(unit)
    return lambda row: row.number(column) * factor

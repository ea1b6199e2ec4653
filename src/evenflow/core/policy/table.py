"""A policy to and from a plain table of strings, numbers and tables: JSON, TOML or keyword arguments.

    {"preset": "vllm", "order": "shortest-prompt", "tenant_weights": {"acme": 2}, "classes": {"batch": {"rank": 5}}}

A table is laid over a base (its preset, else the policy that holds now), so a table of one field changes one field, and
a class or tenant that it does not name stays as it was (null takes one away). Unknown names and values of the wrong
type are refused with the nearest right one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from evenflow.core.errors import PolicyError, PolicyProblem
from evenflow.core.policy.presets import PRESETS, policy_of
from evenflow.core.policy.spec import ClassSpec, PolicySpec
from evenflow.core.policy.spelling import nearest

MAX_ENTRIES = 10_000
"""Most classes or tenants of one table: what a stranger sends has limits."""

_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "int | None": (int, type(None)),
}
_IN_WORDS: Mapping[str, str] = {
    "str": "a word",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "int | None": "a whole number, or none",
}


def policy_from_table(table: Mapping[str, object], base: PolicySpec | None = None) -> PolicySpec:
    """Lay `table` over `base`. Raises `PolicyError`. Whether the choices fit together is asked when they are built."""
    changes = dict(table)
    base = PolicySpec() if base is None else base
    if "preset" in changes:
        preset = changes.pop("preset")
        if not isinstance(preset, str) or preset not in PRESETS:
            raise PolicyError([PolicyProblem("preset", f"there is no {preset!r}", nearest(str(preset), PRESETS))])
        base = policy_of(preset)
    if "tenant_weights" in changes:
        changes["tenant_weights"] = _laid_over_weights(base.tenant_weights, changes["tenant_weights"])
    if "classes" in changes:
        changes["classes"] = _laid_over_classes(base.classes, changes["classes"])
    return replace(base, **_checked(PolicySpec, changes, ""))


def policy_to_table(spec: PolicySpec) -> dict[str, object]:
    """`policy_from_table` of this, over any base with no other classes or tenants, is `spec` again."""
    table: dict[str, object] = {field.name: getattr(spec, field.name) for field in fields(spec)}
    table["tenant_weights"] = dict(spec.tenant_weights)
    table["classes"] = {
        each.name: {field.name: getattr(each, field.name) for field in fields(each) if field.name != "name"}
        for each in spec.classes
    }
    return table


def printable(spec: PolicySpec) -> tuple[tuple[str, str], ...]:
    """Every field as a name and a text, for the log and for people."""
    found = []
    for name, value in policy_to_table(spec).items():
        if isinstance(value, Mapping):
            found += [(f"{name}.{key}", _text(each)) for key, each in value.items()]
        else:
            found.append((name, _text(value)))
    return tuple(found)


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items())
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _checked(kind: type, values: Mapping[str, object], path: str) -> dict[str, Any]:  # Any: fields of every type
    """The values, if each is a field of `kind` and of its type."""
    types = {field.name: _name(field.type) for field in fields(kind)}
    problems = []
    for name, value in values.items():
        if name not in types:
            problems.append(PolicyProblem(path + name, "there is no such setting", nearest(name, types)))
        elif (kinds := _KINDS.get(types[name])) is not None:
            is_bool = isinstance(value, bool)
            if not isinstance(value, kinds) or (is_bool and bool not in kinds):
                problems.append(
                    PolicyProblem(path + name, f"{value!r} is not of the right type", _IN_WORDS[types[name]])
                )
    if problems:
        raise PolicyError(problems)
    return dict(values)


def _name(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _entries(field: str, table: object) -> Mapping[str, object]:
    if not isinstance(table, Mapping) or not all(isinstance(name, str) for name in table):
        raise PolicyError([PolicyProblem(field, f"{table!r} is not a table of names", "{}")])
    if len(table) > MAX_ENTRIES:
        raise PolicyError([PolicyProblem(field, f"has {len(table)} entries", f"at most {MAX_ENTRIES}")])
    return table


def _laid_over_weights(base: Sequence[tuple[str, float]], table: object) -> tuple[tuple[str, float], ...]:
    weights: dict[str, float] = dict(base)
    for tenant, weight in _entries("tenant_weights", table).items():
        if weight is None:
            weights.pop(tenant, None)
        elif isinstance(weight, int | float) and not isinstance(weight, bool):
            weights[tenant] = float(weight)
        else:
            raise PolicyError([PolicyProblem(f"tenant_weights.{tenant}", f"{weight!r} is not a number", "1.0")])
    return tuple(weights.items())


def _laid_over_classes(base: Sequence[ClassSpec], table: object) -> tuple[ClassSpec, ...]:
    classes = {each.name: each for each in base}
    for name, changes in _entries("classes", table).items():
        if changes is None:
            classes.pop(name, None)
            continue
        checked = _checked(ClassSpec, {**_entries(f"classes.{name}", changes), "name": name}, f"classes.{name}.")
        classes[name] = replace(classes.get(name, ClassSpec(name)), **checked)
    return tuple(classes.values())

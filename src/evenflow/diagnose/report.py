"""A diagnosis for people, as text, and for programs, as JSON."""

import json
from collections.abc import Iterator
from itertools import groupby, zip_longest

from evenflow.diagnose.effect import EVERYBODY, Basis, Effect, EffectRow
from evenflow.diagnose.finding import Change, Finding
from evenflow.diagnose.rules import Diagnosis
from evenflow.observe.summary import format_seconds


def render_text(diagnosis: Diagnosis) -> str:
    lines = [f"{diagnosis.source}: {diagnosis.looked_at}"]
    if not diagnosis.findings:
        lines.append(f"nothing found; looked for {', '.join(diagnosis.rules)}")
    if diagnosis.basis is not None:
        lines += _basis(diagnosis.basis)
    for number, finding in enumerate(diagnosis.findings, 1):
        lines += ["", f"{number}. {finding.rule}: {finding.sentence}", *_evidence(finding)]
        for change, effect in _changes(finding):
            whose = "" if change.is_of_server else f" (of the {change.of})"
            lines.append(f"   try {change.flags}{whose}: {change.because}")
            lines += _effect(effect)
    return "\n".join(lines) + "\n"


def _evidence(finding: Finding) -> Iterator[str]:
    for what, shown, count in (
        ("steps", finding.steps, finding.num_steps),
        ("requests", finding.requests, finding.num_requests),
    ):
        if shown:
            more = f" and {count - len(shown):,} more" if count > len(shown) else ""
            yield f"   {what}: {', '.join(map(str, shown))}{more}"
    yield "   " + "; ".join(f"{name} {value:.4g}" for name, value in finding.numbers.items())


def _changes(finding: Finding) -> Iterator[tuple[Change, Effect | None]]:
    return zip_longest(finding.changes, finding.effects)


def _basis(basis: Basis) -> Iterator[str]:
    yield from basis.sentences
    for each in basis.agreement:
        error = f" ({each.error:+.1%})" if each.error is not None else ""
        logged, simulated = _shown(each.logged, each.unit), _shown(each.simulated, each.unit)
        yield f"   {each.metric:16} {logged:>10} logged {simulated:>10} simulated{error}"


def _effect(effect: Effect | None) -> Iterator[str]:
    if effect is None:
        return
    if effect.unknown is not None:
        yield f"      no numbers: {effect.unknown}"
    yield from (f"      note: {note}" for note in effect.notes)
    for group, rows in groupby(effect.rows, lambda row: row.group):
        inside = list(rows)
        if group != EVERYBODY:
            yield f"      {group} ({inside[0].num_requests:,} requests)"
        yield from (f"      {_row(row)}" for row in inside)


def _row(row: EffectRow) -> str:
    metric = row.metric if row.group == EVERYBODY else f"  {row.metric}"
    change = f"{row.change:+.1%}" if row.change is not None else ""
    between = ""
    if row.low is not None and row.high is not None:
        between = f" ({_shown(row.low, row.unit, signed=True)} to {_shown(row.high, row.unit, signed=True)})"
    moved = f"{_shown(row.before, row.unit):>9} -> {_shown(row.after, row.unit):<9}"
    return f"{metric:16} {moved} {change:>7}{between}: {row.verdict}"


def _shown(value: float, unit: str, *, signed: bool = False) -> str:
    if unit == "s" and abs(value) < 1e-7:
        return "0 s"
    size = format_seconds(abs(value)) if unit == "s" else f"{abs(value):.4g}"
    sign = "-" if value < 0.0 else "+" if signed else ""
    return sign + size


def render_json(diagnosis: Diagnosis) -> str:
    findings = [_finding(finding) for finding in diagnosis.findings]
    body = {
        "object": "diagnosis",
        "source": diagnosis.source,
        "looked_at": diagnosis.looked_at,
        "rules": diagnosis.rules,
        "what_if": None if diagnosis.basis is None else _basis_table(diagnosis.basis),
        "findings": findings,
    }
    return json.dumps(body, indent=1) + "\n"


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "rule": finding.rule,
        "sentence": finding.sentence,
        "numbers": dict(finding.numbers),
        "steps": finding.steps,
        "num_steps": finding.num_steps,
        "requests": finding.requests,
        "num_requests": finding.num_requests,
        "changes": [_change(change, effect) for change, effect in _changes(finding)],
    }


def _basis_table(basis: Basis) -> dict[str, object]:
    agreement = [
        {"metric": a.metric, "unit": a.unit, "logged": a.logged, "simulated": a.simulated, "error": a.error}
        for a in basis.agreement
    ]
    return {"sentences": basis.sentences, "agreement": agreement}


def _change(change: Change, effect: Effect | None) -> dict[str, object]:
    found = None
    if effect is not None:
        found = {
            "rows": [_row_table(row) for row in effect.rows],
            "share_of_steps_outside_cost": effect.share_outside,
            "notes": effect.notes,
            "unknown": effect.unknown,
        }
    return {"of": change.of, "settings": dict(change.settings), "because": change.because, "effect": found}


def _row_table(row: EffectRow) -> dict[str, object]:
    return {
        "metric": row.metric,
        "group": row.group,
        "num_requests": row.num_requests,
        "unit": row.unit,
        "before": row.before,
        "after": row.after,
        "low": row.low,
        "high": row.high,
        "error": row.error,
        "is_guess": row.is_guess,
        "verdict": row.verdict,
    }

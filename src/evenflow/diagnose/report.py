"""A diagnosis for people, as text, and for programs, as JSON."""

import json
from collections.abc import Iterator

from evenflow.diagnose.finding import Change, Effect, Finding
from evenflow.diagnose.rules import Diagnosis


def render_text(diagnosis: Diagnosis) -> str:
    lines = [f"{diagnosis.source}: {diagnosis.looked_at}"]
    if not diagnosis.findings:
        lines.append(f"nothing found; looked for {', '.join(diagnosis.rules)}")
    for number, finding in enumerate(diagnosis.findings, 1):
        lines += ["", f"{number}. {finding.rule}: {finding.sentence}", *_evidence(finding)]
        for change, effect in zip(finding.changes, finding.effects, strict=True):
            whose = "" if change.of == "server" else f" (of the {change.of})"
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


def _effect(effect: Effect | None) -> Iterator[str]:
    for row in effect.rows if effect is not None else ():
        yield f"      {row.metric} ({row.group}): {row.before:.4g} -> {row.after:.4g}"


def render_json(diagnosis: Diagnosis) -> str:
    findings = [_finding(finding) for finding in diagnosis.findings]
    body = {
        "object": "diagnosis",
        "source": diagnosis.source,
        "looked_at": diagnosis.looked_at,
        "rules": diagnosis.rules,
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
        "changes": [_change(change, effect) for change, effect in zip(finding.changes, finding.effects, strict=True)],
    }


def _change(change: Change, effect: Effect | None) -> dict[str, object]:
    rows = None
    if effect is not None:
        rows = [{"metric": r.metric, "group": r.group, "before": r.before, "after": r.after} for r in effect.rows]
    return {"of": change.of, "settings": dict(change.settings), "because": change.because, "effect": rows}

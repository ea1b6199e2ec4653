"""The tables of rules, and their use: every rule looks at the same run and says something or nothing."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from evenflow.core.request import RequestId
from evenflow.diagnose.budget_above_target import budget_above_target
from evenflow.diagnose.client_lag import client_lag
from evenflow.diagnose.cold_cache import cold_cache, cold_cache_of
from evenflow.diagnose.effect import Basis, Effect
from evenflow.diagnose.finding import Change, Finding, WhatIf
from evenflow.diagnose.long_prompts import long_prompts
from evenflow.diagnose.many_preemptions import many_preemptions
from evenflow.diagnose.output_stalls import output_stalls
from evenflow.diagnose.overload import overload
from evenflow.diagnose.run_view import Run
from evenflow.diagnose.squeezed_prefills import squeezed_prefills
from evenflow.diagnose.tenant_crowding import tenant_crowding
from evenflow.diagnose.too_few_seats import too_few_seats
from evenflow.replay.assess import Assessed

LOG_RULES: Mapping[str, Callable[[Run], Finding | None]] = {
    "squeezed prefills": squeezed_prefills,
    "output stalls": output_stalls,
    "many preemptions": many_preemptions,
    "too few seats": too_few_seats,
    "budget above the ITL target": budget_above_target,
    "long prompts crowd short ones": long_prompts,
    "one tenant crowds the others": tenant_crowding,
    "cold prefix cache": cold_cache,
}


def _cold_cache_of_result(assessed: Assessed) -> Finding | None:
    return cold_cache_of(
        [
            (r.intended, RequestId(r.request_id), r.server_prompt_tokens, r.cached_tokens)
            for r in assessed.result.records
            if r.ok and r.server_prompt_tokens is not None and r.cached_tokens is not None
        ]
    )


RESULT_RULES: Mapping[str, Callable[[Assessed], Finding | None]] = {
    "client lag": client_lag,
    "overload": overload,
    "cold prefix cache": _cold_cache_of_result,
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`looked_at` says what the rules had before them, for people; `basis` what the findings' effects rest on."""

    source: str
    looked_at: str
    rules: tuple[str, ...]
    findings: tuple[Finding, ...]
    basis: Basis | None = None

    @property
    def num_server_changes(self) -> int:
        return sum(change.is_of_server for finding in self.findings for change in finding.changes)


def diagnose_run(run: Run, source: str) -> Diagnosis:
    looked_at = f"{len(run.steps):,} steps and {len(run.spans):,} requests"
    return Diagnosis(source, looked_at, tuple(LOG_RULES), _found(rule(run) for rule in LOG_RULES.values()))


def diagnose_result(assessed: Assessed, source: str) -> Diagnosis:
    looked_at = f"{len(assessed.result.records):,} requests"
    return Diagnosis(source, looked_at, tuple(RESULT_RULES), _found(rule(assessed) for rule in RESULT_RULES.values()))


def _found(findings: Iterable[Finding | None]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding is not None)


def with_effects(diagnosis: Diagnosis, what_if: WhatIf, basis: Basis) -> Diagnosis:
    """Every change asked about. Two findings may propose the same one, which is asked about once."""
    known: dict[tuple[tuple[str, str], ...], Effect] = {}

    def effect(change: Change) -> Effect:
        if not change.is_of_server:
            return Effect(unknown=f"it is a change of the {change.of}; what is simulated is the server")
        if change.settings not in known:
            known[change.settings] = what_if(change)
        return known[change.settings]

    findings = tuple(replace(each, effects=tuple(map(effect, each.changes))) for each in diagnosis.findings)
    return replace(diagnosis, findings=findings, basis=basis)

"""The tables of rules, and their use: every rule looks at the same run and says something or nothing."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from evenflow.core.request import RequestId
from evenflow.diagnose.budget_above_target import budget_above_target
from evenflow.diagnose.client_lag import client_lag
from evenflow.diagnose.cold_cache import cold_cache, cold_cache_of
from evenflow.diagnose.finding import Finding, WhatIf
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
    """`looked_at` says what the rules had before them, for people."""

    source: str
    looked_at: str
    rules: tuple[str, ...]
    findings: tuple[Finding, ...]


def diagnose_run(run: Run, source: str, what_if: WhatIf | None = None) -> Diagnosis:
    looked_at = f"{len(run.steps):,} steps and {len(run.spans):,} requests"
    return Diagnosis(source, looked_at, tuple(LOG_RULES), _asked((r(run) for r in LOG_RULES.values()), what_if))


def diagnose_result(assessed: Assessed, source: str, what_if: WhatIf | None = None) -> Diagnosis:
    looked_at = f"{len(assessed.result.records):,} requests"
    found = (rule(assessed) for rule in RESULT_RULES.values())
    return Diagnosis(source, looked_at, tuple(RESULT_RULES), _asked(found, what_if))


def _asked(findings: Iterable[Finding | None], what_if: WhatIf | None) -> tuple[Finding, ...]:
    """A change of the client's is no question for a simulator of the server."""
    return tuple(
        replace(
            finding,
            effects=tuple(what_if(c) if what_if is not None and c.of == "server" else None for c in finding.changes),
        )
        for finding in findings
        if finding is not None
    )

"""Every rule sees its defect where a bad setting made it, says which steps and requests, and is silent elsewhere."""

import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from evenflow.cli.diagnose import diagnose as diagnose_command
from evenflow.core.errors import ConfigError
from evenflow.diagnose import run_view
from evenflow.diagnose.effect import Agreement, Basis, Effect, EffectRow
from evenflow.diagnose.finding import Change, Finding, settings
from evenflow.diagnose.report import render_json, render_text
from evenflow.diagnose.rules import LOG_RULES, RESULT_RULES, diagnose_run, with_effects
from evenflow.diagnose.run_view import Run, TimeWithin, TooLong, look_at
from evenflow.engine.config import EngineConfig
from evenflow.observe.log import EventLogWriter
from evenflow.replay.assess import assess
from evenflow.replay.load import LoadOptions
from evenflow.replay.result import Result, write_result
from records import record, result
from simulated import simulate
from story import alone, step
from unit.diagnose.loads import CASES, changed, run

PROPOSED = {
    "squeezed prefills": {"max_num_batched_tokens": "128"},
    "output stalls": {"max_num_batched_tokens": "32"},
    "many preemptions": {"max_num_seqs": "6"},
    "too few seats": {"max_num_seqs": "16"},
    "budget above the ITL target": {"max_num_batched_tokens": "128"},
    "long prompts crowd short ones": {"long_prompts": "limited", "long_prompt_tokens": "256"},
    "one tenant crowds the others": {"fairness": "vtc"},
    "cold prefix cache": {"warm_up": "4"},
}
WITHOUT_STEPS = {"one tenant crowds the others", "cold prefix cache"}
WITHOUT_REQUESTS = {"budget above the ITL target"}


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == set(LOG_RULES) == set(PROPOSED)


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_sees_its_defect_and_proposes_a_setting(rule: str) -> None:
    found = LOG_RULES[rule](run(rule, "bad"))
    assert found is not None
    assert found.rule == rule
    assert dict(found.changes[0].settings) == PROPOSED[rule]
    steps = {step.step for step in run(rule, "bad").steps}
    spans = {span.request_id for span in run(rule, "bad").spans}
    assert set(found.steps) <= steps
    assert set(found.requests) <= spans
    assert (found.num_steps >= len(found.steps) > 0) is (rule not in WITHOUT_STEPS)
    assert (found.num_requests >= len(found.requests) > 0) is (rule not in WITHOUT_REQUESTS)


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_is_silent_where_the_settings_are_good(rule: str) -> None:
    assert LOG_RULES[rule](run(rule, "good")) is None


# Served with the proposed setting, the same load shows the defect no more.
FIELDS = {"max_num_seqs": "seats", "max_num_batched_tokens": "budget", "num_blocks": "blocks"}


@pytest.mark.parametrize(
    ("rule", "number"),
    [("output stalls", 0), ("many preemptions", 0), ("many preemptions", 2), ("budget above the ITL target", 0)],
)
def test_the_proposed_setting_removes_the_defect(rule: str, number: int) -> None:
    found = LOG_RULES[rule](run(rule, "bad"))
    assert found is not None
    ((name, value),) = found.changes[number].settings
    assert LOG_RULES[rule](changed(rule, **{FIELDS[name]: int(value)})) is None


def test_evidence_points_at_the_request_that_did_it() -> None:
    stalls = LOG_RULES["output stalls"](run("output stalls", "bad"))
    assert stalls is not None
    assert all(request_id.startswith("p") for request_id in stalls.requests)
    crowded = LOG_RULES["one tenant crowds the others"](run("one tenant crowds the others", "bad"))
    assert crowded is not None
    assert all(request_id.startswith("b") for request_id in crowded.requests)


@pytest.mark.parametrize(
    ("rule", "fixed"),
    [
        ("long prompts crowd short ones", {"long_prompts": "limited"}),
        ("one tenant crowds the others", {"fairness": "vtc"}),
    ],
)
def test_what_is_set_already_is_not_proposed(rule: str, fixed: dict[str, str]) -> None:
    seen = run(rule, "bad")
    assert LOG_RULES[rule](replace(seen, settings={**seen.settings, **fixed})) is None


def test_without_an_itl_target_nobody_misses_it() -> None:
    seen = replace(run("budget above the ITL target", "bad"), itl_target=None)
    assert LOG_RULES["budget above the ITL target"](seen) is None


@pytest.mark.parametrize("rule", LOG_RULES)
def test_a_log_of_one_request_or_none_has_no_defects(rule: str) -> None:
    assert LOG_RULES[rule](look_at(alone())) is None
    assert LOG_RULES[rule](look_at([])) is None


def test_what_would_happen_is_asked_of_whoever_knows() -> None:
    asked: list[Change] = []

    def what_if(change: Change) -> Effect:
        asked.append(change)
        return Effect((EffectRow("TTFT P95", "all", 40, "s", 2.0, 0.5, -1.6, -1.2),))

    basis = Basis(("simulated",), (Agreement("TTFT P95", "s", 2.0, 2.1),))
    diagnosis = with_effects(diagnose_run(run("many preemptions", "bad"), "x"), what_if, basis)
    assert asked == [change for finding in diagnosis.findings for change in finding.changes]
    text, body = render_text(diagnosis), json.loads(render_json(diagnosis))
    assert "TTFT P95               2 s -> 500 ms     -75.0% (-1.6 s to -1.2 s): better" in text
    assert "TTFT P95                2 s logged      2.1 s simulated (+5.0%)" in text
    (first, *_) = body["findings"][0]["changes"]
    (row,) = first["effect"]["rows"]
    assert (row["before"], row["after"], row["low"], row["high"]) == (2.0, 0.5, -1.6, -1.2)
    assert body["what_if"]["agreement"][0]["error"] == pytest.approx(0.05)
    client = with_effects(diagnose_run(run("cold prefix cache", "bad"), "x"), what_if, basis)
    assert "no numbers: it is a change of the replay" in render_text(client)


def test_a_change_that_two_findings_propose_is_asked_about_once() -> None:
    asked: list[Change] = []

    def what_if(change: Change) -> Effect:
        asked.append(change)
        return Effect(unknown="it is too hard")

    found = diagnose_run(run("many preemptions", "bad"), "x")
    twice = with_effects(replace(found, findings=(*found.findings, *found.findings)), what_if, Basis(()))
    assert len(asked) == found.num_server_changes
    assert render_text(twice).count("no numbers: it is too hard") == 2 * len(asked)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (EffectRow("TTFT mean", "all", 40, "s", 2.0, 1.0, -1.2, -0.8, error=0.1), "better"),
        (EffectRow("TTFT mean", "all", 40, "s", 2.0, 2.1, 0.05, 0.15, error=-0.2), "worse, by less than"),
        (EffectRow("output tokens/s", "all", 40, "tokens/s", 2.0, 2.4, 0.3, 0.5, more_is_better=True), "better"),
        (EffectRow("TTFT mean", "all", 40, "s", 2.0, 1.0, -2.2, 0.2), "no difference"),
        (EffectRow("TTFT mean", "all", 4, "s", 2.0, 1.0), "too few requests"),
        (EffectRow("TTFT mean", "all", 40, "s", 2.0, 1.0, -1.2, -0.8, is_guess=True), "better (a guess)"),
    ],
    ids=["better", "below-the-error", "more-is-better", "chance", "few", "guess"],
)
def test_a_verdict_says_what_the_data_carry(row: EffectRow, verdict: str) -> None:
    assert row.verdict.startswith(verdict)


def test_text_and_json_say_the_same() -> None:
    diagnosis = diagnose_run(run("many preemptions", "bad"), "run.jsonl")
    text, body = render_text(diagnosis), json.loads(render_json(diagnosis))
    (found,) = (each for each in body["findings"] if each["rule"] == "many preemptions")
    assert found["sentence"] in text
    assert "try --max-num-seqs 6: " in text
    assert next(change["settings"] for change in found["changes"]) == {"max_num_seqs": "6"}
    assert ", ".join(map(str, found["steps"])) in text
    assert ", ".join(found["requests"]) in text


def test_nothing_found_is_said_with_what_was_looked_for() -> None:
    text = render_text(diagnose_run(run("too few seats", "good"), "run.jsonl"))
    assert "nothing found; looked for squeezed prefills, output stalls, " in text
    assert " steps and 40 requests" in text


def test_time_within_steps_is_cut_at_both_ends() -> None:
    within = TimeWithin([step(1, 1.0, 2.0), step(2, 4.0, 6.0)])
    assert within.between(0.0, 9.0) == 3.0
    assert within.between(1.25, 1.75) == 0.5
    assert within.between(2.5, 3.5) == 0.0
    assert within.between(1.5, 5.0) == 1.5


def test_a_log_that_would_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_view, "MAX_STEPS", 2)
    with pytest.raises(TooLong, match="more than 2 steps; cut it with `evenflow log"):
        look_at(alone())


def _late() -> Result:
    return result(*(replace(record(n, n * 0.5), sent=n * 0.5 + 0.2 * (n % 2)) for n in range(40)))


def _overloaded() -> Result:
    return result(*(record(n, n * 0.1, ttft=0.1 + 0.05 * n) for n in range(60)))


def _warmed_up() -> Result:
    return result(*(record(n, n * 0.5, server_prompt_tokens=100, cached_tokens=0 if n < 6 else 80) for n in range(60)))


def _steady() -> Result:
    return result(*(record(n, n * 0.5, server_prompt_tokens=100, cached_tokens=0) for n in range(60)))


@pytest.mark.parametrize(
    ("rule", "made", "setting"),
    [
        ("client lag", _late, "rate_scale"),
        ("overload", _overloaded, "rate_scale"),
        ("cold prefix cache", _warmed_up, "warm_up"),
    ],
)
def test_a_result_shows_what_the_client_can_know(rule: str, made: Callable[[], Result], setting: str) -> None:
    found: Finding | None = RESULT_RULES[rule](assess(made()))
    assert found is not None
    assert [name for name, _ in found.changes[0].settings] == [setting]
    assert found.num_requests >= len(found.requests) > 0
    assert RESULT_RULES[rule](assess(_steady())) is None


@pytest.mark.parametrize(
    ("change", "flags"),
    [
        (settings("", max_num_seqs=6, interleave="shared"), "--max-num-seqs 6 --policy-set interleave=shared"),
        (settings("", num_blocks=70), "num_blocks=70"),
        (settings("", of="replay", rate_scale=0.5), "--rate-scale 0.5"),
    ],
)
def test_a_change_is_shown_as_the_flags_that_make_it(change: Change, flags: str) -> None:
    """Of `evenflow serve` and of `evenflow replay`, which must know them."""
    assert change.flags == flags
    known = {"server": EngineConfig, "replay": LoadOptions}[change.of]
    for flag in re.findall(r"--([a-z-]+)", flags):
        assert flag.replace("-", "_") in {each.name for each in fields(known)}


def test_the_command_takes_a_log_or_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES["too few seats"]
    with EventLogWriter(tmp_path / "run.jsonl") as log:
        log.write(simulate(case.bad, case.load()))
    diagnose_command(tmp_path / "run.jsonl", facts_only=True)
    assert "try --max-num-seqs 16: " in capsys.readouterr().out
    diagnose_command(tmp_path / "run.jsonl", facts_only=True, json=True)
    assert json.loads(capsys.readouterr().out)["findings"][0]["rule"] == "too few seats"
    write_result(_overloaded(), {}, tmp_path / "result.json")
    diagnose_command(tmp_path / "result.json")
    assert "1. overload: mean TTFT rose from" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--itl-target must be seconds above 0"):
        diagnose_command(tmp_path / "run.jsonl", itl_target=-1.0)


def test_the_target_of_the_policy_is_taken_if_none_is_given() -> None:
    seen: Run = run("budget above the ITL target", "bad")
    assert seen.itl_target == 0.05
    assert look_at(alone(), itl_target=0.2).itl_target == 0.2

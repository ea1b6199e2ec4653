"""What-if numbers are what the change does: they are held against the same load on a server that has it."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from evenflow.cli.diagnose import diagnose
from evenflow.core.errors import ConfigError
from evenflow.core.events import Arrived, ConfigChanged, Event
from evenflow.core.policy.spec import PolicySpec
from evenflow.diagnose.effect import Effect, EffectRow
from evenflow.diagnose.finding import Change, settings
from evenflow.observe.log import EventLogWriter
from evenflow.simulate.changed import changed
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import Bounds, Identity, Kind, StepCost
from evenflow.simulate.cost_file import save_cost
from evenflow.simulate.cost_settings import different_from_log, different_settings
from evenflow.simulate.effects import THROUGHPUT
from evenflow.simulate.logged_run import logged_run
from evenflow.simulate.recorded import RecordedError, replay_log
from evenflow.simulate.what_if import SimulatedRun
from simulated import Server, abort, ask, simulate
from unit.diagnose.loads import CASES

# As `simulated.step_seconds` has it.
COST = StepCost(
    Identity(Kind.MEASURED, "a machine", "a model", "0", "a small model", (("dtype", "float32"),)),
    fixed_seconds=0.005,
    token_seconds=1e-4,
    prefill_context_seconds=5e-8,
    decode_context_seconds=5e-8,
)


@cache
def log(rule: str) -> tuple[Event, ...]:
    return tuple(simulate(CASES[rule].bad, CASES[rule].load()))


@cache
def simulated_run(rule: str) -> SimulatedRun:
    return SimulatedRun(log(rule), COST, fitted_here=False)


def rows(effect: Effect, group: str = "all") -> dict[str, EffectRow]:
    return {row.metric: row for row in effect.rows if row.group == group}


def ttft_of(events: tuple[Event, ...]) -> float:
    records = logged_run(events).records
    return sum(record.ttft or 0.0 for record in records) / len(records)


def test_a_change_that_helps_is_told_by_as_much_as_it_does() -> None:
    effect = simulated_run("too few seats")(settings("more", max_num_seqs=16))
    case = CASES["too few seats"]
    really = tuple(simulate(replace(case.bad, seats=16), case.load()))
    found = rows(effect)
    assert found["TTFT mean"].before == pytest.approx(ttft_of(log("too few seats")), rel=0.01)
    assert found["TTFT mean"].after == pytest.approx(ttft_of(really), rel=0.01)
    assert found["TTFT mean"].verdict == found[THROUGHPUT].verdict == "better"
    assert found["ITL mean"].verdict == "worse"
    assert rows(effect, "1-128 in, 33-128 out")["TTFT mean"].verdict == "better"


def test_a_change_that_does_nothing_is_told_as_nothing() -> None:
    found = rows(simulated_run("too few seats")(settings("less", max_num_batched_tokens=256)))
    assert found["TTFT mean"].after == pytest.approx(found["TTFT mean"].before)
    assert {row.verdict for row in found.values()} == {"no difference that the data carry"}


def test_a_change_that_harms_is_told_as_worse() -> None:
    found = rows(simulated_run("many preemptions")(settings("fewer", max_num_seqs=6)))
    assert found["TTFT mean"].verdict == found[THROUGHPUT].verdict == "worse"
    assert found["ITL P95"].verdict == "better"


def test_the_policy_is_a_setting_too_and_each_tenant_has_its_own_numbers() -> None:
    effect = simulated_run("one tenant crowds the others")(settings("fair", fairness="vtc"))
    case = CASES["one tenant crowds the others"]
    fair = logged_run(simulate(replace(case.bad, policy=PolicySpec(fairness="vtc")), case.load())).records
    quiet = [record.ttft or 0.0 for record in fair if record.tenant == "quiet"]
    row = rows(effect, "tenant quiet")["TTFT mean"]
    assert row.after == pytest.approx(sum(quiet) / len(quiet), rel=0.01)
    assert row.after < row.before / 4
    assert row.verdict == "too few requests to tell"  # ten of them
    assert rows(effect, "tenant crowd")["TTFT mean"].num_requests == 80


def test_the_run_as_it_was_says_what_the_numbers_are_worth() -> None:
    basis = simulated_run("many preemptions").basis
    figures = {each.metric: each for each in basis.agreement}
    assert figures["preemptions"].logged == figures["preemptions"].simulated > 0
    assert figures["TTFT mean"].error == pytest.approx(0.0, abs=0.001)
    assert any("agrees with the log" in sentence for sentence in basis.sentences)


def test_a_cost_that_does_not_fit_the_log_is_told_before_its_numbers() -> None:
    slow = SimulatedRun(log("too few seats"), replace(COST, fixed_seconds=0.010), fitted_here=False)
    assert any("as directions, not as sizes" in sentence for sentence in slow.basis.sentences)
    row = rows(slow(settings("a little", max_num_seqs=5)))["TTFT mean"]
    assert row.verdict == "better, by less than the simulation is off"


def test_steps_beyond_the_cost_are_marked() -> None:
    narrow = replace(COST, hull=(Bounds("decode_tokens", 0, 4),))
    effect = SimulatedRun(log("too few seats"), narrow, fitted_here=False)(settings("more", max_num_seqs=16))
    assert 0.5 < effect.share_outside < 1.0
    assert any("guesses" in note for note in effect.notes)
    assert rows(effect)["TTFT mean"].verdict == "better (a guess)"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"speculate": 4}, "the simulation has no setting speculate"),
        ({"preemption": "swap"}, "swap needs host memory"),
        ({"fairness": "charity"}, "fairness"),
        ({"max_num_seqs": "many"}, "max_num_seqs must be a whole number"),
        ({"num_blocks": 1}, "0 requests are answered both ways"),
    ],
    ids=["unknown", "swap", "policy", "value", "nobody-fits"],
)
def test_what_cannot_be_simulated_has_a_reason_and_no_numbers(values: dict[str, object], said: str) -> None:
    change = Change(tuple((name, str(value)) for name, value in values.items()), "try")
    effect = simulated_run("too few seats")(change)
    assert not effect.rows
    assert said in (effect.unknown or "")


def test_what_the_change_would_refuse_is_counted() -> None:
    load = [ask(f"r{n}", n * 0.05, 900 if n % 10 == 0 else 50, 20) for n in range(60)]
    whole = SimulatedRun(simulate(Server(), load), COST, fitted_here=False)
    effect = whole(settings("less memory", num_blocks=20))
    assert "6 requests that are answered now would be refused or cut short" in effect.notes


def test_an_aborted_request_takes_its_place_and_has_no_latency() -> None:
    load = [ask(f"r{n}", n * 0.01, 64, 60) for n in range(40)]
    events = simulate(Server(seats=4), [*load, abort("r3", 0.2)])
    assert sum(record.ok for record in logged_run(events).records) == 39
    effect = SimulatedRun(events, COST, fitted_here=False)(settings("more", max_num_seqs=16))
    assert rows(effect)["TTFT mean"].num_requests == 39


def test_requests_of_one_id_are_simulated_one_by_one() -> None:
    """A trace that was replayed twice to one server has every id twice."""
    load = [ask(f"r{n}", at + n * 0.01, 64 + n, 20) for at in (0.0, 100.0) for n in range(20)]
    events = tuple(simulate(Server(seats=4), load))
    plans = logged_run(events).plans
    assert len({plan.request_id for plan in plans}) == 40
    assert [plan.num_prompt_tokens for plan in plans] == [64 + n for n in range(20)] * 2
    figures = {each.metric: each for each in SimulatedRun(events, COST, fitted_here=False).basis.agreement}
    assert figures["TTFT mean"].error == pytest.approx(0.0, abs=0.001)


def test_a_cap_of_the_policy_gives_way_to_the_change() -> None:
    config = SimulationConfig(policy=PolicySpec(max_num_seqs=4, order="priority"), max_num_seqs=8)
    found = changed(config, (("max_num_seqs", "16"), ("max_overtake", "7")))
    assert found.max_num_seqs == 16
    assert found.spec() == PolicySpec(order="priority", max_overtake=7)


def test_a_cost_of_other_settings_is_told_by_name() -> None:
    assert different_settings(COST, {"dtype": "bfloat16", "quantize": "int8"}) == (
        "dtype was 'float32' when it was measured and is 'bfloat16'",
    )
    assert not different_settings(COST, {"dtype": "float32"})
    other = replace(COST, identity=replace(COST.identity, kind=Kind.ROOFLINE))
    assert not different_settings(other, {"dtype": "bfloat16"})


def test_a_log_says_what_its_engine_computed_with(tmp_path: Path) -> None:
    announced = ConfigChanged(0.0, (("dtype", "bfloat16"), ("policy", "vllm")))
    path = written(tmp_path / "run.jsonl", (announced,))
    assert different_from_log(COST, path) == different_settings(COST, {"dtype": "bfloat16"})
    assert not different_from_log(COST, written(tmp_path / "other.jsonl", log("too few seats")))


def test_a_log_without_its_beginning_cannot_be_simulated() -> None:
    with pytest.raises(RecordedError, match="a whole log begins with that"):
        SimulatedRun(log("too few seats")[1:], COST, fitted_here=False)


def test_a_request_longer_than_the_context_of_its_engine_is_none_of_its_log() -> None:
    """Prompts are made of what a log says of them: of a forged length they would fill the memory."""
    forged = [
        event._replace(num_prompt_tokens=10**12) if isinstance(event, Arrived) else event
        for event in log("too few seats")
    ]
    for read in (logged_run, replay_log):
        with pytest.raises(RecordedError, match="context of its engine"):
            read(forged)


def written(path: Path, events: tuple[Event, ...]) -> Path:
    with EventLogWriter(path) as file:
        file.write(events)
    return path


def test_the_command_fits_a_cost_to_the_log_where_none_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diagnose(written(tmp_path / "run.jsonl", log("too few seats")))
    out = capsys.readouterr().out
    assert "a cost that was fitted to this log itself" in out
    assert ": better (a guess)" in out


def test_the_command_takes_a_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "run.jsonl", log("too few seats"))
    save_cost(tmp_path / "cost.json", COST)
    with pytest.raises(ConfigError, match="give one of the two"):
        diagnose(path, cost="cost.json", facts_only=True)
    diagnose(path, cost=str(tmp_path / "cost.json"), force=True, json=True)
    body = json.loads(capsys.readouterr().out)
    (change,) = body["findings"][0]["changes"]
    assert change["effect"]["rows"][0]["verdict"] == "better"
    assert body["what_if"]["sentences"][0] == "simulated with a cost measured by this engine: a small model"
    diagnose(path, facts_only=True, json=True)
    body = json.loads(capsys.readouterr().out)
    assert body["what_if"] is None
    assert body["findings"][0]["changes"][0]["effect"] is None


def test_a_log_of_few_steps_has_no_numbers_and_says_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crowd = [ask(f"r{n}", 0.0, 8, 2) for n in range(60)]
    diagnose(written(tmp_path / "run.jsonl", tuple(simulate(Server(seats=4), crowd))))
    out = capsys.readouterr().out
    assert "too few seats" in out
    assert "no what-if numbers: 30 steps are too few to fit a cost to; give at least 50; or measure a cost" in out


def test_the_cost_is_of_no_use_for_a_result_file(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(ConfigError, match="--cost simulates what an event log saw"):
        diagnose(tmp_path / "result.json", cost="a100-llama2-70b")

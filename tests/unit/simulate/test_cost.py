"""What a step costs, the file that says it, and the fit that finds it."""

from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest

from evenflow.simulate.cost import Bounds, Drift, Identity, Kind, Knot, Regime, Spread, StepCost, StepFeatures
from evenflow.simulate.cost_file import CostError, load_cost, save_cost
from evenflow.simulate.fit import StepSample, fit_cost, non_negative_least_squares, quality_of
from evenflow.simulate.machine import this_engine, this_machine

HERE = Identity(Kind.MEASURED, this_machine(), "a model", this_engine(), "here", (("threads", "2"),))
COST = StepCost(
    HERE,
    fixed_seconds=0.001,
    weight_seconds=0.01,
    token_seconds=1e-4,
    sharpness=4.0,
    request_seconds=1e-5,
    prefill_context_seconds=1e-8,
    decode_context_seconds=1e-7,
    knots=(Knot(0.0, 0.001), Knot(4.0, -0.001), Knot(8.0, 0.002)),
    prefill_read_seconds=2e-7,
    spreads=(Spread(Regime.DECODE, 0.02, 100), Spread(Regime.MIXED, 0.1, 100, (1.0,) * 21)),
    drift=Drift(0.5, 20.0),
    hull=(Bounds("decode_tokens", 0, 64), Bounds("decode_context", 0, 10_000)),
    kv_tokens=1000,
)


def random_features(rng: Random) -> StepFeatures:
    prefill = rng.choice([0, 0, rng.randrange(1, 512)])
    decode = rng.randrange(0 if prefill else 1, 64)
    start = rng.randrange(2000)
    context = prefill * start + prefill * (prefill + 1) // 2
    return StepFeatures(prefill, decode, context, decode * rng.randrange(1, 3000), decode + (prefill > 0))


def test_a_step_reads_the_weights_or_computes_with_them_whichever_is_longer() -> None:
    plain = StepCost(HERE, weight_seconds=0.01, token_seconds=1e-4, sharpness=64.0)
    one, many = StepFeatures(0, 1, 0, 1, 1), StepFeatures(1000, 0, 0, 0, 1)
    assert plain.seconds(one) == pytest.approx(0.01)
    assert plain.seconds(many) == pytest.approx(0.1)


def test_a_chunk_reads_its_context_once_and_computes_with_it_for_every_token() -> None:
    plain = StepCost(HERE, fixed_seconds=0.001, prefill_context_seconds=1e-8, prefill_read_seconds=1e-6)
    one = StepFeatures(100, 0, 100 * 1000, 0, 1)
    assert one.prefill_reads == 1000
    assert plain.seconds(one) == pytest.approx(0.001 + 0.001 + 0.001)
    two = StepFeatures(100, 5, 100 * 1000, 50, 7)
    assert plain.seconds(two) == pytest.approx(0.001 + 0.001 + 0.002)


def test_the_correction_is_a_line_between_knots_and_flat_beyond() -> None:
    assert [COST.correction(n) for n in (1, 4, 16, 256, 4096)] == pytest.approx([0.001, 0.0, -0.001, 0.002, 0.002])


def test_many_decode_steps_cost_to_the_bit_what_each_costs() -> None:
    first = StepFeatures(0, 7, 0, 7000, 7)
    each = [COST.seconds(first._replace(decode_context=7000 + 7 * index)) for index in range(50)]
    assert list(islice(COST.decode_seconds(first), 50)) == each


def test_what_is_outside_the_hull_is_named() -> None:
    assert COST.outside_hull(StepFeatures(0, 64, 0, 10_000, 64)) == ()
    assert COST.outside_hull(StepFeatures(0, 65, 0, 10_001, 65)) == ("decode_tokens", "decode_context")


def test_a_cost_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    save_cost(path, COST)
    assert load_cost(path) == COST


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("token_seconds", -1.0, "token_seconds must be seconds between 0"),
        ("token_seconds", "fast", "Expected `float`"),
        ("sharpness", 0.5, "sharpness must be between 1 and 64"),
        ("knots", [[3.0, 0.0], [1.0, 0.0]], "in order"),
        ("spreads", [["decode", 9.0, 1]], "sigma"),
        ("hull", [["beauty", 0, 1]], "hull of 'beauty'"),
        ("hull", [["decode_tokens", 5, 1]], "hull of decode_tokens: from 5 to 1 is nothing"),
        ("spreads", [["decode", 0.1, 1]] * 2, "spreads has a kind of step twice"),
        ("kv_tokens", 0, "kv_tokens must be at least 1"),
        ("schema_version", 99, "schema version 99"),
        ("kind", "recipe", "not a cost file"),
        ("surprise", 1, "surprise"),
        ("prefill_read_seconds", -1.0, "prefill_read_seconds must be seconds between 0"),
        ("spreads", [["decode", 0.1, 100, [1.0]]], "factors of decode steps must be 21 numbers"),
        ("spreads", [["decode", 0.1, 100, [-1.0] * 21]], "factors of decode steps must be 21 numbers"),
        ("drift", [1.0, 20.0], "the drift's share must be from 0 to below 1"),
    ],
)
def test_a_wrong_cost_file_is_refused_by_field(tmp_path: Path, field: str, value: object, said: str) -> None:
    path = tmp_path / "cost.json"
    save_cost(path, COST)
    fields = msgspec.json.decode(path.read_bytes())
    fields[field] = value
    path.write_bytes(msgspec.json.encode(fields))
    with pytest.raises(CostError, match=said):
        load_cost(path)


def test_a_cost_from_elsewhere_is_refused_unless_forced_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    save_cost(path, replace(COST, identity=replace(HERE, machine="a faster one")))
    with pytest.raises(CostError, match=r"the machine is 'a faster one' there .*--force"):
        load_cost(path)
    assert "a faster one" in load_cost(path, force=True).notes[-1]


def test_a_cost_of_hardware_that_nobody_has_here_needs_no_force(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    save_cost(path, replace(COST, identity=replace(HERE, kind=Kind.ROOFLINE, machine="a GPU")))
    assert load_cost(path).notes == ()


def test_a_fit_finds_the_cost_that_made_the_steps() -> None:
    rng = Random(0)
    truth = replace(COST, knots=(), spreads=())
    samples = []
    for index in range(800):
        features = random_features(rng)
        seconds = truth.seconds(features) * np.exp(0.03 * rng.gauss(0.0, 1.0))
        if index % 50 == 0:
            seconds *= 20.0  # a page fault, a neighbour
        samples.append(StepSample(features, float(seconds), 0.0002))
    fitted = fit_cost(HERE, samples, kv_tokens=77)
    unseen = [random_features(rng) for _ in range(300)]
    quality = quality_of(fitted, [StepSample(each, truth.seconds(each)) for each in unseen], "others")
    assert quality.mape is not None
    assert quality.bias is not None
    assert quality.mape < 0.03
    assert abs(quality.bias) < 0.03
    assert fitted.sigma(Regime.DECODE) == pytest.approx(0.03, rel=0.6)
    assert fitted.gap_seconds == pytest.approx(0.0002)
    assert fitted.kv_tokens == 77
    assert all(outcome >= 0.0 for outcome in (fitted.fixed_seconds, fitted.weight_seconds, fitted.token_seconds))
    assert fitted.qualities[0].num_steps == 160


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(CostError, match="3 steps are too few"):
        fit_cost(HERE, [StepSample(StepFeatures(0, 1, 0, 1, 1), 0.01)] * 3)


def test_no_coefficient_is_negative_and_the_fit_is_the_best_such() -> None:
    rng = np.random.default_rng(0)
    design = rng.random((60, 5))
    target = design @ np.array([1.0, 0.0, 2.0, -1.5, 0.5])
    found = non_negative_least_squares(design, target)
    assert (found >= 0.0).all()
    gradient = design.T @ (design @ found - target)
    assert (gradient[found == 0.0] >= -1e-6).all(), "a coefficient that is left out would not help"
    assert np.abs(gradient[found > 0.0]).max() < 1e-6

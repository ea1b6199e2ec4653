"""The step-time model against engines whose cost is known."""

from random import Random

import pytest

from evenflow.core.step_time import StepTimeModel, StepWork


def true_seconds(work: StepWork) -> float:
    """20 ms, 0.3 ms a decode, 2 us per decode position, 0.5 ms a prefill token, 0.1 us per prefill position."""
    decode_tokens, decode_context, prefill_tokens, prefill_context = work
    decodes = 3e-4 * decode_tokens + 2e-6 * decode_context
    return 0.02 + decodes + 5e-4 * prefill_tokens + 1e-7 * prefill_context


def some_work(rng: Random, *, most_prefill: int = 256) -> StepWork:
    decodes, prefill, start = rng.randint(0, 64), rng.choice([0, rng.randint(1, most_prefill)]), rng.randint(0, 2000)
    return StepWork(decodes, decodes * rng.randint(50, 800), prefill, prefill * start + prefill * prefill // 2)


def taught(steps: int, *, noise: float = 0.0, seed: int = 1) -> StepTimeModel:
    rng, model = Random(seed), StepTimeModel()
    for _ in range(steps):
        work = some_work(rng)
        model.observe(work, true_seconds(work) * (1 + rng.gauss(0, noise)))
    return model


def worst_error(model: StepTimeModel, *, seed: int = 2) -> float:
    """Relative, over steps that the model has not seen."""
    rng = Random(seed)
    works = [some_work(rng) for _ in range(200)]
    return max(abs(model.seconds(work) / true_seconds(work) - 1) for work in works)


def test_a_linear_engine_is_learned_from_a_hundred_steps() -> None:
    assert worst_error(taught(100)) < 0.01


def test_noise_is_averaged_out() -> None:
    assert worst_error(taught(400, noise=0.05)) < 0.05


def test_a_few_steps_that_take_ten_times_as_long_do_not_matter_much() -> None:
    rng, model = Random(3), StepTimeModel()
    for index in range(400):
        work = some_work(rng)
        slow = 10.0 if index > 50 and index % 25 == 0 else 1.0
        model.observe(work, true_seconds(work) * slow * (1 + rng.gauss(0, 0.02)))
    assert worst_error(model) < 0.1


def test_an_engine_that_becomes_slower_is_followed() -> None:
    rng, model = Random(4), taught(300, noise=0.02)
    for _ in range(700):
        work = some_work(rng)
        model.observe(work, 1.5 * true_seconds(work))
        model.seconds(work)
    rng = Random(2)
    works = [some_work(rng) for _ in range(200)]
    assert max(abs(model.seconds(work) / (1.5 * true_seconds(work)) - 1) for work in works) < 0.05


def test_a_machine_that_becomes_half_as_fast_is_followed_within_a_few_steps() -> None:
    rng, model = Random(4), taught(300)
    for _ in range(40):
        work = some_work(rng)
        model.observe(work, 2.0 * true_seconds(work))
    work = some_work(rng)
    assert model.seconds(work) == pytest.approx(2.0 * true_seconds(work), rel=0.1)
    fast = taught(300).prefill_tokens_within(0.1, 16, 4000, 0)
    assert 0.5 * fast < model.prefill_tokens_within(0.2, 16, 4000, 0) < fast, "with a margin, for the surprise"
    for _ in range(400):
        work = some_work(rng)
        model.observe(work, 2.0 * true_seconds(work))
    assert model.prefill_tokens_within(0.2, 16, 4000, 0) == pytest.approx(fast, rel=0.1)


def test_all_but_one_step_in_twenty_keep_to_what_they_were_given() -> None:
    rng, model, late = Random(7), taught(400, noise=0.2), 0
    for _ in range(1000):
        start, target = rng.randint(0, 2000), rng.uniform(0.08, 0.12)
        count = model.prefill_tokens_within(target, 16, 4000, start)
        work = StepWork(16, 4000, count, count * start + count * (count + 1) // 2)
        seconds = true_seconds(work) * max(0.2, 1 + rng.gauss(0, 0.2))
        late += seconds > target
        model.observe(work, seconds)
    assert 30 <= late <= 80


def test_a_long_time_of_decoding_does_not_make_it_forget_what_a_prefill_costs() -> None:
    rng, model = Random(5), taught(300)
    for _ in range(3000):
        work = StepWork(16, 16 * rng.randint(100, 900), 0, 0)
        model.observe(work, true_seconds(work))
        model.seconds(work)
    assert worst_error(model) < 0.02


def test_before_anything_is_known_a_few_prefill_tokens_fit() -> None:
    model = StepTimeModel()
    assert not model.is_fitted
    assert model.seconds(StepWork(1, 1, 0, 0)) == 0.0
    assert model.prefill_tokens_within(0.1, 8, 800, 0) == 64


@pytest.mark.parametrize("start", [0, 500, 4000])
@pytest.mark.parametrize("target", [0.05, 0.08, 0.11])
def test_what_fits_takes_as_long_as_the_target_and_not_longer(target: float, start: int) -> None:
    count = taught(300).prefill_tokens_within(target, 16, 4000, start)
    took = true_seconds(StepWork(16, 4000, count, count * start + count * (count + 1) // 2))
    assert 0.98 * target < took < 1.005 * target


def test_an_uncertain_model_leaves_time_free() -> None:
    sure, unsure = taught(400, noise=0.001), taught(400, noise=0.2)
    assert unsure.prefill_tokens_within(0.08, 16, 4000, 0) < sure.prefill_tokens_within(0.08, 16, 4000, 0)


def test_nothing_fits_where_the_decodes_alone_take_too_long() -> None:
    assert taught(300).prefill_tokens_within(0.021, 64, 30_000, 0) == 0


def test_no_step_is_more_than_twice_as_large_as_any_that_was_seen() -> None:
    rng, model = Random(6), StepTimeModel()
    for _ in range(100):
        work = some_work(rng, most_prefill=40)
        model.observe(work, true_seconds(work))
    assert model.prefill_tokens_within(10.0, 4, 400, 0) == 80


def test_an_engine_on_which_prefill_costs_nothing_has_no_limit_but_that_one() -> None:
    model = StepTimeModel()
    for index in range(100):
        model.observe(StepWork(index % 7, 0, index % 5, 0), 0.01 + 0.001 * (index % 7))
    assert model.prefill_tokens_within(0.02, 1, 0, 0) == 8


def test_no_cost_is_ever_negative() -> None:
    """Steps that happen to be shorter with more context must not earn time for it."""
    model = StepTimeModel()
    for index in range(100):
        model.observe(StepWork(4, 1000 * (index % 10), 0, 0), 0.1 - 0.005 * (index % 10))
    assert model.seconds(StepWork(4, 1_000_000, 0, 0)) >= 0.05

"""A policy that cannot work is refused as a whole, with every reason and the nearest value that would do."""

from dataclasses import fields, replace
from typing import Any

import pytest

from evenflow.core.config import SchedulerConfig
from evenflow.core.errors import PolicyError, PolicyProblem
from evenflow.core.learned import Learned
from evenflow.core.policy.checks import MAX_CLASSES
from evenflow.core.policy.presets import PRESETS, policy_of
from evenflow.core.policy.registry import PIECES, bounds_of, build_policy, limits_of
from evenflow.core.policy.scheduling import SchedulingPolicy
from evenflow.core.policy.spec import ClassSpec, PolicySpec
from evenflow.core.step_time import StepWork

CONFIG = SchedulerConfig(max_num_seqs=8, max_model_len=1000, vocab_size=100, max_num_batched_tokens=64)


def build(spec: PolicySpec, config: SchedulerConfig = CONFIG, learned: Learned | None = None) -> SchedulingPolicy:
    limits = limits_of(spec, config, num_blocks=10, block_size=16)
    return build_policy(spec, limits, Learned() if learned is None else learned)


def problems(learned: Learned | None = None, **choices: Any) -> list[PolicyProblem]:  # Any: fields of every type
    with pytest.raises(PolicyError) as refused:
        build(replace(PolicySpec(), **choices), learned=learned)
    return list(refused.value.problems)


@pytest.mark.parametrize("slot", PIECES)
def test_an_unknown_piece_is_refused_with_the_nearest_known(slot: str) -> None:
    known = next(iter(PIECES[slot]))
    chosen: dict[str, Any] = {slot: known + "x"}  # Any: as above
    (problem,) = problems(**chosen)
    assert (problem.field, problem.nearest) == (slot, known)


@pytest.mark.parametrize("slot", PIECES)
def test_every_piece_can_be_chosen_and_reads_fields_that_exist(slot: str) -> None:
    known = {field.name for field in fields(PolicySpec)}
    for name, piece in PIECES[slot].items():
        chosen: dict[str, Any] = {slot: name}  # Any: as above
        assert getattr(build(replace(PolicySpec(), **chosen)).spec, slot) == name
        assert set(piece.fields) <= known
        assert piece.sentence.endswith(".")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_built_and_says_what_it_promises(name: str) -> None:
    bounds = bounds_of(policy_of(name), CONFIG, num_blocks=10, block_size=16)
    assert {"overtake_seconds", "decode_gap_steps", "step_tokens", "passed_by"} <= {bound.name for bound in bounds}
    assert all(bound.sentence.endswith(".") for bound in bounds)
    assert len({bound.name for bound in bounds}) == len(bounds)


@pytest.mark.parametrize(
    ("field", "value", "nearest"),
    [
        ("max_overtake", -1.0, "0"),
        ("max_overtake", float("nan"), "0"),
        ("max_overtake", float("inf"), "1e+06"),
        ("output_weight", 0.0, "1e-06"),
        ("max_skipped_steps", 0, "1"),
        ("max_skipped_steps", 2_000_000, "1000000"),
        ("max_prefill_share", 1.5, "1"),
        ("itl_target", 0.0, "1e-06"),
        ("max_long_prefills", 0, "1"),
        ("reserve_quantile", 2.0, "1"),
        ("max_num_seqs", 0, "1"),
        ("max_num_seqs", 2**63, "1000000000"),
        ("max_waiting_tokens", 10**4000, "1000000000"),
        ("max_waiting_tokens", 0, "1"),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_end_of_the_range(field: str, value: float, nearest: str) -> None:
    chosen: dict[str, Any] = {field: value}  # Any: as above
    (problem,) = problems(**chosen)
    assert (problem.field, problem.nearest) == (field, nearest)


def test_every_problem_is_told_at_once() -> None:
    found = problems(order="fifo", max_backfill=-1, tenant_weights=(("t", 0.0),))
    assert [problem.field for problem in found] == ["order", "max_backfill", "tenant_weights.t"]


def test_the_message_says_all_of_it() -> None:
    with pytest.raises(PolicyError, match="max_backfill: -1 is not between 0 and 1000; nearest that works: 0"):
        build(replace(PolicySpec(), max_backfill=-1))


def test_a_least_share_above_the_largest_is_refused() -> None:
    (problem,) = problems(interleave="shared", min_prefill_share=0.5, max_prefill_share=0.25)
    assert (problem.field, problem.nearest) == ("min_prefill_share", "0.25")
    assert build(replace(PolicySpec(), min_prefill_share=0.5, max_prefill_share=0.25)).interleave.name == "decode-first"


def test_a_step_of_one_token_cannot_be_shared() -> None:
    (problem,) = problems(interleave="shared", max_num_batched_tokens=1)
    assert (problem.field, problem.nearest) == ("max_num_batched_tokens", "2")


def test_a_target_below_what_one_decode_step_costs_is_refused_once_that_is_known() -> None:
    learned = Learned()
    assert build(replace(PolicySpec(), budget="itl-target", itl_target=0.01), learned=learned).budget.name
    for index in range(64):
        learned.step_time.observe(StepWork(index % 9, 0, 0, 0), 0.02 + 0.001 * (index % 9))
    (problem,) = problems(learned, budget="itl-target", itl_target=0.01)
    assert problem.field == "itl_target"
    assert 0.0205 <= float(problem.nearest) <= 0.0215
    build(replace(PolicySpec(), budget="itl-target", itl_target=float(problem.nearest)), learned=learned)


def classes(*specs: ClassSpec) -> dict[str, Any]:  # Any: as above
    return {"classes": specs}


def test_guarantees_of_more_than_everything_are_refused() -> None:
    (problem,) = problems(
        **classes(ClassSpec("default", guaranteed_seats=0.7), ClassSpec("batch", guaranteed_seats=0.5))
    )
    assert (problem.field, problem.nearest) == ("classes.default.guaranteed_seats", "0.5")
    assert "120%" in problem.reason
    (problem,) = problems(**classes(ClassSpec("default", guaranteed_kv=0.9), ClassSpec("batch", guaranteed_kv=0.5)))
    assert problem.field == "classes.default.guaranteed_kv"


def test_a_class_that_could_never_run_is_refused() -> None:
    (problem,) = problems(**classes(ClassSpec("default", guaranteed_seats=1.0), ClassSpec("batch")))
    assert (problem.field, problem.nearest) == ("classes.batch.guaranteed_seats", "0.125")
    (problem,) = problems(**classes(ClassSpec("default", guaranteed_kv=1.0), ClassSpec("batch")))
    assert (problem.field, problem.nearest) == ("classes.batch.guaranteed_kv", "0.1")


def test_a_guarantee_above_the_own_maximum_is_refused() -> None:
    (problem,) = problems(**classes(ClassSpec("default", guaranteed_kv=0.5, max_kv=0.25)))
    assert (problem.field, problem.nearest) == ("classes.default.guaranteed_kv", "0.25")


def test_classes_have_names_of_their_own_and_one_is_the_default() -> None:
    assert problems(**classes(ClassSpec("batch")))[0] == ("classes", "none is named default", "batch, default")
    assert problems(**classes(ClassSpec("default"), ClassSpec("default")))[0].field == "classes.default"
    for name in ("", "a/b", "a+long", "Batch", "all", "x" * 65):
        assert problems(**classes(ClassSpec("default"), ClassSpec(name)))[0].field == f"classes.{name}"
    many = [ClassSpec("default"), *(ClassSpec(f"c{number}") for number in range(MAX_CLASSES))]
    assert problems(**classes(*many))[0].nearest == f"at most {MAX_CLASSES}"
    assert problems(**classes(ClassSpec("default", max_seats=1.5)))[0].field == "classes.default.max_seats"


def test_caps_above_what_the_engine_was_built_for_count_as_that() -> None:
    limits = build(replace(PolicySpec(), max_num_seqs=100, max_num_batched_tokens=1000)).limits
    assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (8, 64)
    limits = build(replace(PolicySpec(), max_num_seqs=3, max_num_batched_tokens=10)).limits
    assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (3, 10)

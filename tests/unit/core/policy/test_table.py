"""A policy to and from a plain table."""

import json
from dataclasses import replace

import pytest

from evenflow.core.errors import PolicyError
from evenflow.core.policy.presets import PRESETS, policy_of
from evenflow.core.policy.spec import ClassSpec, PolicySpec
from evenflow.core.policy.table import MAX_ENTRIES, policy_from_table, policy_to_table, printable


def refused(table: dict[str, object]) -> list[tuple[str, str]]:
    """Field and nearest legal value of each problem."""
    with pytest.raises(PolicyError) as error:
        policy_from_table(table)
    return [(problem.field, problem.nearest) for problem in error.value.problems]


@pytest.mark.parametrize("name", PRESETS)
def test_a_table_of_a_policy_gives_the_policy_again(name: str) -> None:
    spec = replace(policy_of(name), tenant_weights=(("acme", 2.0),))
    table = json.loads(json.dumps(policy_to_table(spec)))
    assert policy_from_table(table) == spec


def test_a_table_is_laid_over_a_base_one_field_at_a_time() -> None:
    base = replace(PolicySpec(), order="priority", max_backfill=3)
    assert policy_from_table({"max_backfill": 5}, base) == replace(base, max_backfill=5)
    assert policy_from_table({}) == PolicySpec()


def test_a_preset_is_the_base_of_the_rest_of_its_table() -> None:
    base = replace(PolicySpec(), max_backfill=3)
    spec = policy_from_table({"preset": "vllm", "order": "priority"}, base)
    assert spec == replace(policy_of("vllm"), order="priority")


@pytest.mark.parametrize("preset", [None, 7, "vlm"])
def test_a_preset_is_the_name_of_one(preset: object) -> None:
    ((field, nearest),) = refused({"preset": preset})
    assert field == "preset"
    assert "vllm" in nearest


def test_a_class_is_changed_added_or_taken_away_by_its_name() -> None:
    spec = policy_from_table({"classes": {"batch": {"rank": 5}, "extra": {"max_seats": 0.5}, "interactive": None}})
    assert spec.classes == (
        ClassSpec("default"),
        ClassSpec("batch", rank=5),
        ClassSpec("extra", max_seats=0.5),
    )


def test_a_tenants_weight_is_changed_or_taken_away_by_its_name() -> None:
    base = replace(PolicySpec(), tenant_weights=(("a", 2.0), ("b", 3.0)))
    assert policy_from_table({"tenant_weights": {"b": 4, "a": None}}, base).tenant_weights == (("b", 4.0),)


def test_every_unknown_name_is_refused_with_the_nearest_known() -> None:
    assert refused({"ordre": "fcfs", "max_backfil": 1}) == [("ordre", "order"), ("max_backfil", "max_backfill")]
    assert refused({"preset": "vlm"}) == [("preset", "vllm")]
    assert refused({"preset": 7})[0][0] == "preset"
    assert refused({"classes": {"batch": {"rnk": 1}}}) == [("classes.batch.rnk", "rank")]
    (nothing_like_it,) = refused({"preset": "zzzz"})
    assert nothing_like_it[1] == ", ".join(PRESETS)


@pytest.mark.parametrize(
    ("table", "field", "kind"),
    [
        ({"order": 1}, "order", "a word"),
        ({"max_backfill": "8"}, "max_backfill", "a whole number"),
        ({"max_backfill": True}, "max_backfill", "a whole number"),
        ({"max_backfill": 1.5}, "max_backfill", "a whole number"),
        ({"itl_target": "fast"}, "itl_target", "a number"),
        ({"refuse_late": 1}, "refuse_late", "true or false"),
        ({"max_num_seqs": 1.5}, "max_num_seqs", "a whole number, or none"),
        ({"classes": {"batch": {"rank": None}}}, "classes.batch.rank", "a whole number"),
        ({"classes": {"batch": 3}}, "classes.batch", "{}"),
        ({"classes": [1]}, "classes", "{}"),
        ({"classes": {7: {}}}, "classes", "{}"),
        ({"tenant_weights": {"a": "heavy"}}, "tenant_weights.a", "1.0"),
        ({"tenant_weights": {"a": False}}, "tenant_weights.a", "1.0"),
        ({"tenant_weights": {str(n): 1 for n in range(MAX_ENTRIES + 1)}}, "tenant_weights", f"at most {MAX_ENTRIES}"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(table: dict[str, object], field: str, kind: str) -> None:
    assert refused(table) == [(field, kind)]


def test_whole_numbers_are_numbers_and_none_lifts_a_limit() -> None:
    spec = policy_from_table({"itl_target": 1, "max_num_seqs": 8, "refuse_late": True})
    assert (spec.itl_target, spec.max_num_seqs, spec.refuse_late) == (1, 8, True)
    assert policy_from_table({"max_num_seqs": None}, spec).max_num_seqs is None


def test_every_field_is_printed_for_people() -> None:
    printed = dict(printable(replace(PolicySpec(), tenant_weights=(("acme", 2.0),))))
    assert printed["order"] == "fcfs"
    assert printed["itl_target"] == "0.1"
    assert printed["max_num_seqs"] == "none"
    assert printed["refuse_late"] == "False"
    assert printed["tenant_weights.acme"] == "2"
    assert printed["classes.batch"].startswith("rank 0, guaranteed_seats 0, max_seats 1")

"""Service classes in numbers: what is kept for whom."""

from evenflow.core.policy.bound import Limits
from evenflow.core.policy.classes import ServiceClasses
from evenflow.core.policy.spec import ClassSpec

LIMITS = Limits(max_num_seqs=10, max_num_batched_tokens=64, max_model_len=100, num_blocks=100, block_size=4)
CLASSES = (
    ClassSpec("default", guaranteed_seats=0.29, guaranteed_kv=0.29, max_kv=0.5),
    ClassSpec("batch", rank=1, guaranteed_seats=0.1, max_seats=0.01),
)


def made() -> ServiceClasses:
    return ServiceClasses(CLASSES, LIMITS)


def test_shares_become_seats_and_blocks_and_a_maximum_is_one_at_least() -> None:
    default, batch = made()
    assert (default.guaranteed_seats, default.guaranteed_blocks, default.max_blocks) == (2, 29, 50)
    assert (batch.guaranteed_seats, batch.max_seats) == (1, 1)
    assert "default" in made()
    assert "other" not in made()


def test_what_others_are_guaranteed_and_do_not_use_is_kept() -> None:
    classes = made()
    default, batch = classes
    assert classes.kept_seats(batch, {}) == 2
    default.seats = 1
    assert classes.kept_seats(batch, {}) == 1
    assert classes.kept_seats(batch, {"default": 1}) == 2
    default.seats = 5
    assert classes.kept_seats(batch, {}) == 0
    assert classes.kept_blocks(batch, {}) == 29
    assert classes.kept_blocks(default, {}) == 0


def test_a_request_alone_may_have_what_others_are_not_guaranteed_up_to_its_maximum() -> None:
    classes = made()
    default, batch = classes
    assert (classes.most_blocks(default), classes.most_blocks(batch)) == (50, 71)
    assert (classes.most_seats(default), classes.most_seats(batch)) == (9, 1)


def test_a_class_that_is_no_more_counts_as_the_default() -> None:
    classes = made()
    assert classes.of("gone") is classes.of("default")


def test_only_limits_that_bind_are_published() -> None:
    values = {bound.name: bound.value for bound in made().bounds()}
    assert values == {
        "default_guaranteed_seats": 2,
        "default_guaranteed_blocks": 29,
        "default_max_seats": 9,
        "default_max_blocks": 50,
        "batch_guaranteed_seats": 1,
        "batch_max_seats": 1,
    }
    assert ServiceClasses((ClassSpec("default"),), LIMITS).bounds() == ()

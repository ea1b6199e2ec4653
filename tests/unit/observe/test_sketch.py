"""Sketches: near the true quantile wherever it lies, exact in count and sum, and the same whole or in parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.observe.sketch import RELATIVE_ERROR, SMALLEST, Sketch

seconds = st.floats(min_value=2 * SMALLEST, max_value=1e6)


@given(st.lists(seconds, min_size=1, max_size=200), st.floats(0.0, 1.0))
def test_a_quantile_is_within_one_percent_of_the_observation_of_that_rank(values: list[float], fraction: float) -> None:
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    exact = sorted(values)[int(fraction * (len(values) - 1))]
    found = sketch.quantile(fraction)
    assert found is not None
    assert abs(found - exact) <= (RELATIVE_ERROR + 1e-9) * exact


@given(st.lists(seconds, max_size=100), st.lists(seconds, max_size=100))
def test_parts_merge_to_the_whole(left: list[float], right: list[float]) -> None:
    whole, first, second = Sketch(), Sketch(), Sketch()
    whole.add_many(left + right)
    first.add_many(left)
    for value in right:
        second.add(value)
    first.merge(second)
    assert first.counts == whole.counts
    assert first.num_observations == whole.num_observations == len(left) + len(right)
    assert first.total == pytest.approx(whole.total)
    assert first.largest == whole.largest


def test_percentiles_are_withheld_where_the_sample_does_not_carry_them() -> None:
    sketch = Sketch()
    sketch.add(1.0, count=100)
    assert sketch.tail().p50 is not None
    assert sketch.tail().p95 is not None
    assert sketch.tail().p99 is None


def test_memory_does_not_grow_with_the_observations() -> None:
    sketch = Sketch()
    sketch.add_many(np.random.default_rng(0).lognormal(0.0, 3.0, 100_000).tolist())
    assert len(sketch.counts) < 1400


def test_nothing_has_no_quantile_and_no_mean() -> None:
    assert Sketch().quantile(0.5) is None
    assert Sketch().mean is None


def test_zero_is_the_smallest_bucket_and_never_above_what_was_seen() -> None:
    sketch = Sketch()
    sketch.add(0.0)
    assert sketch.quantile(1.0) == 0.0

"""Places that are gathered and counted later are those that were handed over, however many at once."""

from collections import Counter
from random import Random

import numpy as np
import pytest

from evenflow.observe.tally import BUCKETS, LATENCIES, Tally, merged


def places(rng: Random, count: int) -> list[int]:
    """Of the first and of the last latency, at both ends of its buckets."""
    ends = [0, 1, BUCKETS - 1, (len(LATENCIES) - 1) * BUCKETS, len(LATENCIES) * BUCKETS - 1]
    return [rng.choice(ends) if rng.random() < 0.5 else rng.randrange(700, 900) for _ in range(count)]


def counted(tally: Tally) -> Counter[int]:
    found: Counter[int] = Counter()
    for name, sketch in tally.latencies.items():
        first = LATENCIES.index(name) * BUCKETS
        found.update({first + bucket: count for bucket, count in sketch.counts.items()})
        assert sketch.num_observations == sum(sketch.counts.values())
    return found


@pytest.mark.parametrize("pieces", [[3], [1] * 400, [20_000], [9_000, 0, 9_000, 5]])
def test_places_are_counted_whether_few_or_many(pieces: list[int]) -> None:
    rng, tally, expected = Random(1), Tally(), Counter[int]()
    for size in pieces:
        new = places(rng, size)
        expected.update(new)
        tally.gather(np.array(new, np.uint16))
    assert counted(tally) == expected
    tally.gather(np.array([5], np.uint16))
    assert counted(tally) == expected + Counter([5])


def test_merged_tallies_are_the_sum_and_stay_as_they_are() -> None:
    rng, tallies, expected = Random(2), [Tally(), Tally(), Tally()], Counter[int]()
    for number, tally in enumerate(tallies):
        new = places(rng, 50)
        expected.update(new)
        tally.gather(np.array(new, np.uint16))
        tally.num_requests = number
        tally.sums[0] = 0.5 * number
        tally.largest[number] = 7.0
    before = [counted(tally) for tally in tallies]
    whole = merged(tallies)
    assert counted(whole) == expected
    assert (whole.num_requests, whole.sums[0], whole.largest.tolist()) == (3, 1.5, [7.0, 7.0, 7.0, 0.0, 0.0])
    assert [counted(tally) for tally in tallies] == before
    assert counted(merged([])) == Counter()

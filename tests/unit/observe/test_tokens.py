"""Token times kept by runs, against a list per request."""

from collections import Counter
from itertools import pairwise
from random import Random

from evenflow.core.request import RequestId
from evenflow.observe.tokens import TokenFold


def test_runs_tell_the_same_times_and_gaps_as_one_list_per_request() -> None:
    rng = Random(0)
    fold = TokenFold()
    times: dict[RequestId, list[float]] = {}
    gaps: Counter[float] = Counter()
    told: Counter[float] = Counter()
    batch: list[RequestId] = []
    for step in range(12_000):  # several times what is kept before trimming
        if rng.random() < 0.3:
            batch = [RequestId(f"r{i}") for i in sorted(rng.sample(range(12), rng.randint(0, 9)))]
        if times and rng.random() < 0.05:
            gone = rng.choice(list(times))
            assert list(fold.times(gone)) == times.pop(gone)
            fold.forget(gone)
            assert not fold.times(gone)
        emitted = (*batch, batch[0]) if batch and rng.random() < 0.01 else tuple(batch)
        for seconds, count in fold.give(emitted, float(step)):
            told[seconds] += count
        for request_id, count in Counter(emitted).items():
            own = times.setdefault(request_id, [])
            gap = (step - own[-1]) / count if own else 0.0
            new = [step - gap * (count - i) for i in range(1, count)] + [float(step)]
            gaps.update(later - earlier for earlier, later in pairwise([*own[-1:], *new]))
            own += new
    assert told == gaps
    assert {request_id: list(fold.times(request_id)) for request_id in times} == times


def test_only_what_live_runs_need_is_kept() -> None:
    fold = TokenFold()
    for step in range(20_000):
        fold.give((RequestId(f"r{step // 100}"),), float(step))
        if step % 100 == 99:
            assert list(fold.times(RequestId(f"r{step // 100}"))) == [float(s) for s in range(step - 99, step + 1)]
            fold.forget(RequestId(f"r{step // 100}"))
    assert fold.num_kept < 5_000

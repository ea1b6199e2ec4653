"""Settings that no run can tell apart."""

from evenflow.tune.equal import equal_cells, roomiest_first, same_runs
from evenflow.tune.space import Cell
from tuning_runs import noisy


def of(seats: int, tokens: int = 256, policy: str = "vllm", share: float = 1.0) -> Cell:
    return Cell((("max_num_batched_tokens", tokens), ("max_num_seqs", seats), ("kv_share", share), ("policy", policy)))


def test_runs_that_are_the_same_to_the_last_digit_are_one_setting() -> None:
    runs = [(of(4), noisy(0.2, 1)), (of(16), noisy(0.1, 2)), (of(32), noisy(0.1, 2)), (of(8), noisy(0.2, 1, gap=0.03))]
    assert equal_cells(runs) == ((of(4),), (of(32), of(16)), (of(8),))


def test_a_little_is_a_difference() -> None:
    assert same_runs(noisy(0.1, 1), noisy(0.1, 1))
    assert not same_runs(noisy(0.1, 1), noisy(0.1 + 1e-12, 1))
    assert not same_runs(noisy(0.1, 1), noisy(0.1, 1, num=399))


def test_the_one_with_most_room_and_the_smallest_steps_stands_for_all() -> None:
    assert roomiest_first([of(16, 256), of(32, 512), of(32, 256)]) == (of(32, 256), of(32, 512), of(16, 256))
    assert roomiest_first([of(16, share=0.5), of(16, share=1.0)])[0] == of(16, share=1.0)
    assert roomiest_first([of(16, policy="sglang"), of(16, policy="vllm")])[0]["policy"] == "sglang", "as they come"

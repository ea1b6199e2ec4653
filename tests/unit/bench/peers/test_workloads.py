"""What contenders are given."""

import pytest

from evenflow.bench.peers.workloads import quick, whole
from evenflow.core.errors import ConfigError
from evenflow.workload.peer_format import PeerWorkload, generate
from pair_tokenizer import PairTokenizer


@pytest.fixture(scope="module")
def workload() -> PeerWorkload:
    return generate(PairTokenizer())


def test_the_whole_work(workload: PeerWorkload) -> None:
    work = whole(workload)
    assert work.w1 == workload.w1
    assert work.w3 == workload.w3
    assert work.unit_gaps == workload.w3_unit_gaps
    assert [len(request.prompt_token_ids) for request in work.long] == [4000] * 8
    assert list(work.contexts) == [250, 500, 1000, 2000, 4000]
    assert all(len(r.prompt_token_ids) == length for length, rs in work.contexts.items() for r in rs)
    assert all(request.max_tokens <= 16 for request in work.warm_up)


def test_long_prompts_do_not_begin_alike(workload: PeerWorkload) -> None:
    work = whole(workload)
    assert len({request.prompt_token_ids[:32] for request in work.long}) == 8


def test_the_single_stream_comes_again_in_another_order(workload: PeerWorkload) -> None:
    first, *others = whole(workload).w2
    assert first == workload.w2[0]
    for other in others:
        assert other.prompt_token_ids != first.prompt_token_ids
        assert sorted(other.prompt_token_ids) == sorted(first.prompt_token_ids)
        assert other.max_tokens == 128


def test_quick_is_little(workload: PeerWorkload) -> None:
    work = quick(workload)
    everything = [work.w1, work.w2, work.w3, work.long, *work.contexts.values()]
    assert all(requests for requests in everything)
    assert sum(request.max_tokens for requests in everything for request in requests) < 500
    assert len(work.unit_gaps) == len(work.w3)


def test_a_workload_that_is_too_small_is_refused() -> None:
    with pytest.raises(ConfigError, match="8 prompts of 4000 need 32000; use a larger one"):
        whole(generate(PairTokenizer(), num_w1=4, num_w3=4))

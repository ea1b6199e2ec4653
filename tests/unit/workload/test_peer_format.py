"""The workload file that all engines read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evenflow.core.errors import ConfigError
from evenflow.workload.peer_format import PeerWorkload, generate, read_workload, write_workload
from evenflow.workload.trace import TraceError
from pair_tokenizer import PairTokenizer

Content = dict[str, Any]  # JSON that a test spoils at will


@pytest.fixture(scope="module")
def workload() -> PeerWorkload:
    return generate(PairTokenizer(), seed=3, num_w1=40, num_w3=30)


def test_a_workload_comes_back_from_its_file(workload: PeerWorkload, tmp_path: Path) -> None:
    write_workload(workload, tmp_path / "w.json")
    assert read_workload(tmp_path / "w.json") == workload


def test_the_file_has_the_keys_that_other_engines_read(workload: PeerWorkload, tmp_path: Path) -> None:
    write_workload(workload, tmp_path / "w.json")
    content = json.loads((tmp_path / "w.json").read_text())
    assert content.keys() == {"seed", "w1", "w2", "w3", "w3_unit_gaps"}
    assert content["w1"][0].keys() == {"id", "prompt", "prompt_token_ids", "max_tokens"}


def test_the_same_seed_makes_the_same_workload(workload: PeerWorkload) -> None:
    assert generate(PairTokenizer(), seed=3, num_w1=40, num_w3=30) == workload
    assert generate(PairTokenizer(), seed=4, num_w1=40, num_w3=30).w1 != workload.w1


def test_lengths_are_within_their_bounds_and_about_their_means() -> None:
    w1 = generate(PairTokenizer(), num_w1=400).w1
    prompts = [len(request.prompt_token_ids) for request in w1]
    outputs = [request.max_tokens for request in w1]
    assert 16 <= min(prompts) < 40
    assert 480 < max(prompts) <= 512
    assert 160 < sum(prompts) / len(prompts) < 200
    assert 16 <= min(outputs) < 30
    assert max(outputs) == 256
    assert 90 < sum(outputs) / len(outputs) < 115


def test_the_single_stream_has_128_tokens_in_and_out(workload: PeerWorkload) -> None:
    (single,) = workload.w2
    assert (len(single.prompt_token_ids), single.max_tokens) == (128, 128)


def test_arrivals_have_exactly_the_rate_asked_for(workload: PeerWorkload) -> None:
    arrivals = workload.w3_arrival_seconds(2.0)
    assert arrivals[0] == 0.0
    assert len(arrivals) == 30
    assert arrivals[-1] == pytest.approx(29 / 2.0)
    with pytest.raises(ConfigError, match="rate must be above 0"):
        workload.w3_arrival_seconds(0.0)


def test_one_request_needs_no_gap() -> None:
    assert generate(PairTokenizer(), num_w1=1, num_w3=1).w3_unit_gaps == (0.0,)
    with pytest.raises(ConfigError, match="a workload needs requests"):
        generate(PairTokenizer(), num_w1=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("w3_unit_gaps"), "missing required field `w3_unit_gaps`"),
        (lambda c: c.update(w4=[]), "unknown field `w4`"),
        (lambda c: c["w1"].clear(), "at `$.w1`"),
        (lambda c: c["w1"][2].pop("max_tokens"), "missing required field `max_tokens` - at `$.w1[2]`"),
        (lambda c: c["w1"][2].update(max_tokens=0), "`$.w1[2].max_tokens`"),
        (lambda c: c["w3"][1].update(prompt_token_ids=[]), "`$.w3[1].prompt_token_ids`"),
        (lambda c: c["w3"][1].update(prompt_token_ids=[-1]), "`$.w3[1].prompt_token_ids[0]`"),
        (lambda c: c["w3_unit_gaps"].pop(), "w3_unit_gaps has 29 entries for 30 requests in w3"),
        (lambda c: c["w3_unit_gaps"].append(-0.5), "`$.w3_unit_gaps[30]`"),
    ],
)
def test_a_spoilt_file_is_told_which_field(
    change: Callable[[Content], object], message: str, workload: PeerWorkload, tmp_path: Path
) -> None:
    path = tmp_path / "w.json"
    write_workload(workload, path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(TraceError) as caught:
        read_workload(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_what_is_no_json_or_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_bytes(b"{")
    with pytest.raises(TraceError, match=r"w\.json is not a workload file"):
        read_workload(tmp_path / "w.json")
    with pytest.raises(TraceError, match=r"cannot read the workload .*missing\.json"):
        read_workload(tmp_path / "missing.json")
    with pytest.raises(TraceError, match="cannot write the workload"):
        write_workload(generate(PairTokenizer(), num_w1=1, num_w3=1), tmp_path / "no" / "w.json")

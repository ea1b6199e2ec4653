"""The load generator against evenflow itself: what both say of the same requests must agree."""

from pathlib import Path

import pytest

from e2e.real_server import RealServer
from evenflow.core.events import Arrived, FirstToken
from evenflow.replay.load import LoadOptions
from evenflow.replay.precise_loop import run_precisely
from evenflow.replay.recorded import open_trace
from evenflow.replay.run import Replay, replay
from evenflow.workload.formats import Reading, read_trace

pytestmark = pytest.mark.model
MOONCAKE = Path(__file__).parents[1] / "data" / "traces" / "mooncake_conversation_excerpt.jsonl"


def test_lengths_times_and_prefixes_agree_with_the_servers_own_log(real_server: RealServer) -> None:
    trace = read_trace(MOONCAKE, Reading(limit=8))
    load = LoadOptions(length_scale=0.01, rate_scale=100.0)
    result = run_precisely(lambda: replay(Replay("r", real_server.url, trace, load)))
    assert all(record.ok for record in result.records)
    assert [record.server_prompt_tokens for record in result.records] == [r.num_prompt_tokens for r in result.records]
    assert [record.num_output_tokens for record in result.records] == [r.max_tokens for r in result.records]
    names = [f"cmpl-{record.request_id}" for record in result.records]
    arrived = {str(event.request_id): event.time for event in real_server.events(Arrived)}
    first = {str(event.request_id): event.time for event in real_server.events(FirstToken)}
    for name, record in zip(names, result.records, strict=True):
        # One machine, one monotonic clock: the client waits for longer than the engine computes, never for less.
        assert record.ttft is not None
        assert record.ttft >= first[name] - arrived[name]
    recorded = open_trace(real_server.log, Reading())
    lengths = {each.name: (each.num_prompt_tokens, each.num_output_tokens) for each in recorded.requests}
    assert [lengths[name] for name in names] == [(r.num_prompt_tokens, r.max_tokens) for r in result.records]

"""A recorded run fed back makes the same decisions, step for step: with preemptions of both kinds, aborts, stops,
expired and shed requests, changes of policy, and prefixes (of prompts and of answers) that requests share."""

import json
from dataclasses import dataclass
from random import Random

import msgspec
import pytest

from evenflow.core.events import Arrived, Event, Finished, StepRecord
from evenflow.core.plan import StepOutcome, StepPlan
from evenflow.core.policy.presets import PRESETS, policy_of
from evenflow.core.request import FinishReason, Request, RequestId, SamplingParams
from evenflow.engine.build import assemble
from evenflow.engine.clock import VirtualClock
from evenflow.engine.config import ResolvedEngine
from evenflow.engine.messages import Abort, Add, AskPolicy
from evenflow.executors.shadow import ShadowExecutor
from evenflow.observe.lines import FromLines, ToLines, line_decoder
from evenflow.simulate.recorded import Repetition, replay_log

BLOCK_SIZE = 4
VOCAB_SIZE = 12
CHANGES: list[dict[str, object]] = [
    *(dict[str, object](preset=preset) for preset in PRESETS),
    {"order": "priority"},
    {"fairness": "vtc", "tenant_weights": {"ann": 3}},
    {"classes": {"gold": {"rank": -1, "guaranteed_seats": 0.2}}},
    {"classes": {"gold": None}},
]


@dataclass
class Slow:
    """The checkable memory, and steps that take as long as chance has it."""

    shadow: ShadowExecutor
    clock: VirtualClock
    rng: Random

    def execute(self, plan: StepPlan, /) -> StepOutcome:
        outcome = self.shadow.execute(plan)
        seconds = 0.01 + 0.001 * plan.num_tokens * self.rng.random()
        copying = 0.0007 * (len(plan.swap_out) + len(plan.swap_in))
        self.clock.advance(seconds + copying)
        return outcome._replace(device_seconds=seconds + copying, swap_seconds=copying)


def live_log(seed: int, policy: str, *, host_blocks: int, reuse_ids: bool = False) -> list[Event]:
    """With `reuse_ids` a client takes an id again as soon as its request is over."""
    rng = Random(seed)
    clock = VirtualClock(1000.0 * rng.random())
    resolved = ResolvedEngine(
        max_model_len=100,
        max_num_seqs=6,
        max_num_batched_tokens=24,
        block_size=BLOCK_SIZE,
        num_blocks=26,
        kv_bytes=0,
        num_host_blocks=host_blocks,
        host_kv_bytes=0,
        watermark_blocks=1,
        vocab_size=VOCAB_SIZE,
        prefix_caching=True,
        policy_name=policy,
        policy=policy_of(policy),
    )
    shadow = ShadowExecutor(num_blocks=26, block_size=BLOCK_SIZE, vocab_size=VOCAB_SIZE, num_host_blocks=host_blocks)
    core = assemble(resolved, Slow(shadow, clock, rng), clock=clock, paranoid=True)
    core.announce((("made", "here"),))
    heads = [tuple(rng.randrange(VOCAB_SIZE) for _ in range(12)) for _ in range(2)]
    events: list[Event] = []
    in_use: set[RequestId] = set()
    number = 0
    while number < 40 or core.has_work:
        if number < 40 and rng.random() < 0.3:
            number += 1
            over = [event.request_id for event in events if isinstance(event, Finished)] if reuse_ids else []
            name = over[-1] if over and over[-1] not in in_use else RequestId(f"r{number}")
            in_use.add(name)
            prompt = (*rng.choice(heads), *(rng.randrange(VOCAB_SIZE) for _ in range(rng.randrange(1, 20))))
            sampling = SamplingParams(
                max_tokens=rng.randrange(1, 40), prompt_logprobs=0 if rng.random() < 0.1 else None
            )
            deadline = clock.now() + rng.random() if rng.random() < 0.2 else None
            core.accept(
                Add(
                    Request(
                        name,
                        prompt,
                        sampling,
                        clock.now() - 0.001,
                        eos_token_ids=(0,),
                        cache_salt=rng.choice(["", "", "pepper"]),
                        tenant=rng.choice(["", "ann", "bob"]),
                        service_class=rng.choice(["default", "interactive", "batch"]),
                        priority=rng.randrange(3),
                        ttft_deadline=deadline,
                    )
                )
            )
        if rng.random() < 0.03:
            reason = rng.choice([FinishReason.ABORT, FinishReason.STOP])
            core.accept(Abort(RequestId(f"r{rng.randrange(1, number + 2)}"), reason))
        if rng.random() < 0.02:
            change: dict[str, object] = rng.choice(CHANGES)
            core.accept(AskPolicy(0, json.dumps(change).encode()))
        clock.advance(0.0005 * rng.random())
        new = core.step().events if core.has_work else core.news().events
        in_use -= {event.request_id for event in new if isinstance(event, Finished)}
        events += new
    return events


def repeated(events: list[Event]) -> Repetition:
    """Through the text of a log, as a live one comes."""
    decoder, to_lines, from_lines = line_decoder(), ToLines(), FromLines()
    return replay_log([from_lines.event(decoder.decode(msgspec.json.encode(line))) for line in to_lines.lines(events)])


@pytest.mark.parametrize("policy", PRESETS)
def test_a_recorded_run_decides_again_what_it_decided(policy: str) -> None:
    aborts = changes = preemptions = 0
    for seed in range(3):
        events = live_log(seed, policy, host_blocks=seed * 10)
        again = repeated(events)
        assert again.difference is None, str(again.difference)
        assert again.num_steps == sum(isinstance(event, StepRecord) for event in events)
        aborts += again.num_aborts
        changes += again.num_policy_changes
        preemptions += again.num_preemptions
    assert aborts > 0
    assert changes > 0
    assert preemptions > 0


def test_another_decision_is_found_and_named() -> None:
    events = live_log(1, "vllm", host_blocks=0)
    at = [index for index, event in enumerate(events) if isinstance(event, StepRecord)][20]
    record = events[at]
    assert isinstance(record, StepRecord)
    events[at] = record._replace(scheduled=record.scheduled[:-1])
    difference = repeated(events).difference
    assert difference is not None
    assert (difference.step, difference.field) == (record.step, "scheduled")


def test_ids_that_are_used_again_are_lives_of_their_own() -> None:
    """With other prompts, lengths and prefixes than the one before had."""
    for seed in range(3):
        events = live_log(seed, "evenflow-balanced", host_blocks=seed * 10, reuse_ids=True)
        ids = [event.request_id for event in events if isinstance(event, Arrived)]
        assert len(set(ids)) < len(ids)
        again = repeated(events)
        assert again.difference is None, f"seed {seed}: {again.difference}"
        assert again.num_requests == len(ids)

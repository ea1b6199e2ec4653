"""What preemption costs when twice as much KV cache is wanted as there is: recompute, swap, auto, and no preemption.

    load          requests of random lengths, all at once, greedy, each of its full length
    engines       recompute | swap | auto    seats for `SEATS`, KV blocks for half of what so many come to at their ends
                  enough KV                  as many seats as swap fills while others wait, and blocks for all of them

"Enough KV" is the same work at the same concurrency without any preemption: what the others lose to it is the cost of
preempting. A computed token is one that was fed; a recomputed one was fed before and lost. What comes first is not
counted: it warms up, touches the memory, and measures how many seats swap fills. On a machine that others use too, the
time of day is no measure for a few hundredths: what `auto` may lose is asked of processor time as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import median

from evenflow.bench.policies.experiment import Figure, Finding, Progress
from evenflow.bench.policies.play import Played, engine_on, play, play_in_turns
from evenflow.core.events import Preempted, StepRecord
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.build import load_model
from evenflow.engine.config import EngineConfig
from evenflow.observe.fold import SpanFold

SEATS = 32
REQUESTS = 40
PROMPT_TOKENS = (48, 144)
OUTPUT_TOKENS = (48, 144)
OVERSUBSCRIPTION = 2
MODES = ("recompute", "swap", "auto")
ENOUGH = "enough KV"
_WARM_UP_REQUESTS = 6


@dataclass(frozen=True, slots=True)
class Run:
    """One engine, one round. `seats_filled` is the mean over the steps that left somebody waiting."""

    output_tokens_per_second: float
    output_tokens_per_processor_second: float
    computed_tokens: int
    recomputed_tokens: int
    preemptions: int
    swapped_blocks: int
    swap_seconds: float
    seconds: float
    seats_filled: float

    @property
    def recomputed_share(self) -> float:
        return self.recomputed_tokens / self.computed_tokens


def measure(config: EngineConfig, /, *, rounds: int, progress: Progress) -> Finding:
    progress("loading the model")
    model = load_model(config)
    per_block = model.bytes_per_block(config.block_size)
    blocks_wanted = _mean_blocks(config.block_size) * SEATS
    blocks = round(blocks_wanted / OVERSUBSCRIPTION)
    config = replace(config, max_num_seqs=SEATS, kv_memory=str(blocks * per_block))
    config = replace(config, host_kv_memory=str(2 * round(blocks_wanted) * per_block))
    engines = {mode: engine_on(model, config, PolicySpec(preemption=mode)) for mode in MODES}
    progress("warming up")
    seats = max(1, round(_summed(play(engines["swap"], _load(0, model.vocab_size))).seats_filled))
    roomy = replace(config, max_num_seqs=seats, kv_memory=str(3 * round(blocks_wanted) * per_block), host_kv_memory="0")
    engines[ENOUGH] = engine_on(model, roomy, PolicySpec())
    play_in_turns(engines, _load(1, model.vocab_size)[:_WARM_UP_REQUESTS])
    runs: dict[str, list[Run]] = {name: [] for name in engines}
    for number in range(1, rounds + 1):
        progress(f"round {number} of {rounds}")
        # New prompts in every round, so that none are in the prefix cache.
        for name, played in play_in_turns(engines, _load(number + 1, model.vocab_size)).items():
            runs[name].append(_summed(played))
    settings = f"{dict(model.description)['model']}: {REQUESTS} requests, {SEATS} seats, {blocks} KV blocks of "
    settings += f"{config.block_size} for {blocks_wanted:.0f} wanted; {ENOUGH}: {seats} seats"
    return Finding(settings, tuple(_row(name, runs[name]) for name in runs), _figures(runs))


def _figures(runs: dict[str, list[Run]]) -> tuple[Figure, ...]:
    def speed(name: str) -> float:
        return median(run.output_tokens_per_processor_second for run in runs[name])

    better = max("recompute", "swap", key=speed)
    return (
        Figure("recomputed / computed tokens, swap", _recomputed_share(runs["swap"]), at_most=0.1),
        Figure("recomputed / computed tokens, auto", _recomputed_share(runs["auto"]), at_most=0.1),
        Figure("recomputed / computed tokens, recompute", _recomputed_share(runs["recompute"])),
        *_compared(runs, "swap", ENOUGH, at_least=0.9),
        *_compared(runs, "auto", ENOUGH, at_least=0.9),
        *_compared(runs, "recompute", ENOUGH),
        *_compared(runs, "auto", better, at_least=0.97),
    )


def _compared(runs: dict[str, list[Run]], one: str, other: str, at_least: float | None = None) -> Iterator[Figure]:
    """Medians of the ratios within each round."""
    pairs = list(zip(runs[one], runs[other], strict=True))
    wall = median(a.output_tokens_per_second / b.output_tokens_per_second for a, b in pairs)
    processor = median(a.output_tokens_per_processor_second / b.output_tokens_per_processor_second for a, b in pairs)
    yield Figure(f"output tokens/s, {one} / {other}", wall, at_least=at_least)
    yield Figure(f"the same by processor time, {one} / {other}", processor, at_least=at_least)


def _recomputed_share(runs: Sequence[Run]) -> float:
    return median(run.recomputed_share for run in runs)


def _row(name: str, runs: Sequence[Run]) -> tuple[tuple[str, str], ...]:
    def middle(values: Sequence[float]) -> float:
        return median(values)

    return (
        ("engine", name),
        ("output tokens/s", f"{middle([run.output_tokens_per_second for run in runs]):.0f}"),
        ("computed tokens", f"{middle([run.computed_tokens for run in runs]):.0f}"),
        ("recomputed", f"{_recomputed_share(runs):.1%}"),
        ("preemptions", f"{middle([run.preemptions for run in runs]):.0f}"),
        ("blocks copied", f"{middle([run.swapped_blocks for run in runs]):.0f}"),
        ("time copying", f"{middle([run.swap_seconds / run.seconds for run in runs]):.2%}"),
        ("seats filled", f"{middle([run.seats_filled for run in runs]):.1f}"),
    )


def _mean_blocks(block_size: int) -> float:
    """Of one request at its end."""
    lengths = [prompt + output for prompt in range(*PROMPT_TOKENS) for output in range(*OUTPUT_TOKENS)]
    return sum(-(-length // block_size) for length in lengths) / len(lengths)


def _load(seed: int, vocab_size: int) -> list[Request]:
    rng = Random(seed)
    return [
        Request(
            RequestId(f"{seed}-{index}"),
            tuple(rng.randrange(vocab_size) for _ in range(rng.randrange(*PROMPT_TOKENS))),
            SamplingParams(max_tokens=rng.randrange(*OUTPUT_TOKENS), temperature=0.0, ignore_eos=True),
            arrival_time=0.0,
        )
        for index in range(REQUESTS)
    ]


def _summed(played: Played) -> Run:
    fold = SpanFold()
    for event in played.events:
        fold.feed(event)
    steps = [event for event in played.events if isinstance(event, StepRecord)]
    num_output = sum(len(step.emitted) for step in steps)
    full = [step for step in steps if step.waiting]
    return Run(
        output_tokens_per_second=num_output / played.seconds,
        output_tokens_per_processor_second=num_output / played.processor_seconds,
        computed_tokens=sum(step.prefill_tokens + step.decode_tokens for step in steps),
        recomputed_tokens=fold.num_recomputed_tokens,
        preemptions=sum(isinstance(event, Preempted) for event in played.events),
        swapped_blocks=sum(step.swapped_out_blocks + step.swapped_in_blocks for step in steps),
        swap_seconds=sum(step.swap_seconds for step in steps),
        seconds=played.seconds,
        seats_filled=sum(step.running for step in full) / len(full),
    )

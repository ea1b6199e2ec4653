"""Two tenants, one of whom sends ten times as much: what does the other get?

With `vtc` the service of two tenants that both have work waiting stays within a published bound, counted in weighted
tokens (prompt tokens once, output tokens twice). The gap is read from the log, step by step.
"""

from dataclasses import replace
from random import Random
from statistics import median

from evenflow.bench.policies.experiment import Figure, Finding, Progress
from evenflow.bench.policies.loads import milliseconds, request, spans
from evenflow.bench.policies.play import Played, engine_on, play
from evenflow.core.events import Arrived, Scheduled, StepRecord
from evenflow.core.policy.fairness import SERVICE_GAP
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.request import Request
from evenflow.engine.build import load_model
from evenflow.engine.config import EngineConfig
from evenflow.engine.core import EngineCore
from evenflow.engine.messages import AskPolicy

SEATS = 8
SMALL, LARGE = 12, 120
PROMPT_TOKENS = (32, 160)
OUTPUT_TOKENS = (8, 48)
POLICIES = {"vtc": PolicySpec(fairness="vtc"), "none": PolicySpec()}


def measure(config: EngineConfig, /, *, rounds: int, progress: Progress) -> Finding:
    progress("loading the model")
    model = load_model(config)
    config = replace(config, max_num_seqs=SEATS, max_model_len=1024, max_num_batched_tokens=256)
    blocks = 2 * SEATS * sum((PROMPT_TOKENS[1], OUTPUT_TOKENS[1])) // config.block_size + 32
    config = replace(config, kv_memory=str(blocks * model.bytes_per_block(config.block_size)))
    load = _load(0, model.vocab_size)
    rows, gaps, bound = [], {}, None
    for name, spec in POLICIES.items():
        progress(f"fairness {name}")
        core = engine_on(model, config, spec)
        played = play(core, load)
        gaps[name] = _largest_gap(played, spec)
        if name == "vtc":
            bound = _bound(core)
        found = spans(played)
        waits = [s.ttft_seconds for n, s in found.items() if n.startswith("small") and s.ttft_seconds is not None]
        rows.append(
            (
                ("fairness", name),
                ("largest service gap", f"{gaps[name]:.0f} weighted tokens"),
                ("median TTFT of the small tenant", milliseconds(median(waits))),
            )
        )
    assert bound is not None
    setting = f"{dict(model.description)['model']}: {SMALL} requests of one tenant beside {LARGE} of another, at once; "
    setting += f"published bound {bound:.0f} weighted tokens"
    figures = (
        Figure("service gap / published bound, vtc", gaps["vtc"] / bound, at_most=1.0),
        Figure("service gap / published bound, without fairness", gaps["none"] / bound),
    )
    return Finding(setting, tuple(rows), figures)


def _load(seed: int, vocab_size: int) -> list[Request]:
    rng = Random(seed)

    def some(tenant: str, count: int) -> list[Request]:
        return [
            request(
                f"{tenant}-{i}",
                rng.randrange(*PROMPT_TOKENS),
                rng.randrange(*OUTPUT_TOKENS),
                rng,
                vocab_size,
                tenant=tenant,
            )
            for i in range(count)
        ]

    return [*some("large", LARGE), *some("small", SMALL)]


def _bound(core: EngineCore) -> float:
    core.accept(AskPolicy(0))
    [answer] = core.news().answers
    value = next(bound.value for bound in answer.policy.bounds if bound.name == SERVICE_GAP)
    assert value is not None
    return value


def _largest_gap(played: Played, spec: PolicySpec) -> float:
    """While both tenants have somebody waiting. Service is charged at admission for the prompt, then per token."""
    prompt: dict[str, int] = {}
    tenant: dict[str, str] = {}
    waiting: dict[str, set[str]] = {"large": set(), "small": set()}
    service = {"large": 0.0, "small": 0.0}
    base: float | None = None
    largest = 0.0
    for event in played.events:
        match event:
            case Arrived():
                prompt[event.request_id], tenant[event.request_id] = event.num_prompt_tokens, event.tenant
                waiting[event.tenant].add(event.request_id)
            case Scheduled() if not event.resumed:
                waiting[tenant[event.request_id]].discard(event.request_id)
                computed = prompt[event.request_id] - event.cached_tokens
                service[tenant[event.request_id]] += spec.input_weight * computed
            case StepRecord():
                for request_id in event.emitted:
                    service[tenant[request_id]] += spec.output_weight
                difference = service["large"] - service["small"]
                if all(waiting.values()):
                    base = difference if base is None else base
                    largest = max(largest, abs(difference - base))
            case _:
                pass
    return largest

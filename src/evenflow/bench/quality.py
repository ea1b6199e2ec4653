"""What a number format costs in quality: the perplexity of real English text.

    perplexity = exp(-mean log p(token | the tokens before it in its window))

The text is cut into windows of `window` tokens, each a request of its own; every token but the window's first counts.
The log-probabilities are those that requests get as `prompt_logprobs`: through the scheduler, the paged KV cache and
the kernels that serve, so what is measured is what is served.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

from evenflow.core.plan import TokenLogprobs
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.build import build_core
from evenflow.engine.config import Dtype, EngineConfig, KVDtype, Quantize
from evenflow.engine.core import EngineCore
from evenflow.engine.messages import Add

TEXT_NAME = "Alice's Adventures in Wonderland, chapters I to VII (Lewis Carroll, 1865; public domain)"
WINDOW = 1024


@dataclass(frozen=True, slots=True)
class Format:
    """`reference` names the format whose perplexity this one's is compared with."""

    dtype: Dtype
    quantize: Quantize
    kv_dtype: KVDtype
    reference: str | None


# From the most exact to the smallest; each differs from its reference in one thing.
FORMATS = {
    "fp32": Format(Dtype.FP32, Quantize.NONE, KVDtype.AUTO, None),
    "bf16": Format(Dtype.BF16, Quantize.NONE, KVDtype.AUTO, "fp32"),
    "bf16, int8 KV": Format(Dtype.BF16, Quantize.NONE, KVDtype.INT8, "bf16"),
    "int8": Format(Dtype.BF16, Quantize.INT8, KVDtype.AUTO, "bf16"),
    "int8, int8 KV": Format(Dtype.BF16, Quantize.INT8, KVDtype.INT8, "int8"),
}


@dataclass(frozen=True, slots=True)
class Perplexity:
    """`tokens` is how many counted."""

    settings: dict[str, str]
    tokens: int
    perplexity: float
    seconds: float


def text() -> str:
    return (files("evenflow.bench") / "data" / "alice.txt").read_text("ascii")


def windows(token_ids: Sequence[int], *, num_tokens: int, window: int = WINDOW) -> list[tuple[int, ...]]:
    """Whole windows that hold at least `num_tokens` tokens together, or all that the text has."""
    starts = range(0, min(num_tokens, len(token_ids) - window + 1), window)
    return [tuple(token_ids[start : start + window]) for start in starts]


def measure(
    config: EngineConfig,
    prompts: Sequence[tuple[int, ...]],
    *,
    progress: Callable[[str], None] = lambda what: None,
) -> Perplexity:
    """`prompts` are windows, of two tokens or more."""
    progress("loading the model")
    longest = max(map(len, prompts))
    core, facts = build_core(
        replace(config, max_model_len=longest + 1, max_num_seqs=2, kv_memory=None, prefix_caching=False)
    )
    began = time.perf_counter()
    log_probabilities: list[float] = []
    for index, prompt in enumerate(prompts):
        progress(f"window {index + 1} of {len(prompts)}")
        log_probabilities += _log_probabilities(core, index, prompt)
    mean = math.fsum(log_probabilities) / len(log_probabilities)
    seconds = time.perf_counter() - began
    return Perplexity(dict(facts.settings), len(log_probabilities), math.exp(-mean), seconds)


def in_format(config: EngineConfig, name: str) -> EngineConfig:
    form = FORMATS[name]
    return replace(config, dtype=form.dtype, quantize=form.quantize, kv_dtype=form.kv_dtype)


def _log_probabilities(core: EngineCore, index: int, prompt: tuple[int, ...]) -> list[float]:
    sampling = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
    core.accept(Add(Request(RequestId(f"window-{index}"), prompt, sampling, arrival_time=float(index))))
    entries: list[TokenLogprobs] = []
    while core.has_work:
        for output in core.step().outputs:
            entries += output.prompt_logprobs
    assert [entry.token_id for entry in entries] == list(prompt[1:])
    return [entry.logprob for entry in entries]

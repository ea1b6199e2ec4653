"""From request fields to how tokens are picked and how they become text.

Everything here is checked before the prompt is tokenised, so that a wrong field costs nothing; only the length is
settled afterwards, when it is known what the prompt leaves of the context.
"""

from collections.abc import Sequence
from dataclasses import replace

from evenflow.core.errors import ContextOverflow, InvalidRequest
from evenflow.core.request import SamplingParams
from evenflow.engine.api import EngineFacts, TextOptions
from evenflow.engine.arguments import check_token_ids
from evenflow.server.limits import ServerLimits
from evenflow.server.prompts import Prompt
from evenflow.server.schema import GenerationFields

DEFAULTS = SamplingParams()
_INT32 = range(-(2**31), 2**31)


def require(condition: bool, param: str, message: str) -> None:
    if not condition:
        raise InvalidRequest(f"{param} {message}", param=param)


def check_common(fields: GenerationFields, limits: ServerLimits, *, num_prompts: int) -> None:
    """The fields that are neither sampling nor text."""
    n = 1 if fields.n is None else fields.n
    require(1 <= n <= limits.max_n, "n", f"must be between 1 and {limits.max_n}, not {n}")
    total, most = n * num_prompts, limits.max_sequences
    require(total <= most, "n", f"times the number of prompts is {total}; this server runs at most {most} a request")
    options = fields.stream_options
    if options is not None:
        require(bool(fields.stream), "stream_options", "needs stream to be true")
        stats = "stream_options.continuous_usage_stats"
        require(not options.continuous_usage_stats, stats, "is not supported; use include_usage")
    require(fields.priority is None or fields.priority in _INT32, "priority", "must fit a signed 32-bit integer")
    longest = limits.max_cache_salt_chars
    require(len(fields.cache_salt or "") <= longest, "cache_salt", f"must have at most {longest} characters")


def text_options(fields: GenerationFields, limits: ServerLimits) -> TextOptions:
    stop = (fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop or ())
    require(len(stop) <= limits.max_stop_strings, "stop", f"must be at most {limits.max_stop_strings} strings")
    require(all(stop), "stop", "must not contain an empty string")
    longest = max(map(len, stop), default=0)
    require(longest <= limits.max_stop_chars, "stop", f"must not be longer than {limits.max_stop_chars} characters")
    return TextOptions(
        stop=stop,
        include_stop_str_in_output=bool(fields.include_stop_str_in_output),
        skip_special_tokens=fields.skip_special_tokens is not False,
        min_tokens=fields.min_tokens or 0,
    )


def sampling_params(fields: GenerationFields, facts: EngineFacts, limits: ServerLimits) -> SamplingParams:
    """All but log-probabilities; `max_tokens` is what was asked, or all that there could be."""
    stop_token_ids = tuple(fields.stop_token_ids or ())
    fits = len(stop_token_ids) <= limits.max_stop_token_ids
    require(fits, "stop_token_ids", f"must have at most {limits.max_stop_token_ids} entries")
    check_token_ids(stop_token_ids, facts.vocab_size, "stop_token_ids")
    bias = tuple((fields.logit_bias or {}).items())
    require(len(bias) <= limits.max_logit_bias, "logit_bias", f"must have at most {limits.max_logit_bias} entries")
    check_token_ids([token_id for token_id, _ in bias], facts.vocab_size, "logit_bias")
    return SamplingParams(
        max_tokens=facts.max_model_len if fields.max_tokens is None else fields.max_tokens,
        top_k=_top_k(fields.top_k, facts),
        logit_bias=bias,
        seed=fields.seed,
        min_tokens=fields.min_tokens or 0,
        stop_token_ids=stop_token_ids,
        ignore_eos=bool(fields.ignore_eos),
        temperature=_given(fields.temperature, DEFAULTS.temperature),
        top_p=_given(fields.top_p, DEFAULTS.top_p),
        min_p=_given(fields.min_p, DEFAULTS.min_p),
        presence_penalty=_given(fields.presence_penalty, DEFAULTS.presence_penalty),
        frequency_penalty=_given(fields.frequency_penalty, DEFAULTS.frequency_penalty),
        repetition_penalty=_given(fields.repetition_penalty, DEFAULTS.repetition_penalty),
    )


def check_logprob_entries(prompts: Sequence[Prompt], sampling: Sequence[SamplingParams], n: int, most: int) -> None:
    """`sampling[i]` is for `n` sequences of `prompts[i]`, its length settled."""
    total = 0
    for prompt, params in zip(prompts, sampling, strict=True):
        if params.logprobs is not None:
            total += n * params.max_tokens * (1 + params.logprobs)
        if params.prompt_logprobs is not None:
            total += n * len(prompt.token_ids) * (1 + params.prompt_logprobs)
    reason = f"asks for up to {total} log-probabilities; this server reports at most {most} a request, so ask for fewer"
    require(total <= most, "logprobs", f"{reason}, or for fewer tokens")


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


def _top_k(top_k: int | None, facts: EngineFacts) -> int:
    # vLLM's clients say -1 for "all of them"; so does any number as large as the vocabulary.
    if top_k is None or top_k == -1 or top_k >= facts.vocab_size:
        return 0
    return top_k


def fit_length(
    sampling: SamplingParams,
    num_prompt_tokens: int,
    facts: EngineFacts,
    *,
    asked: tuple[str, int] | None,
    default: int | None,
) -> SamplingParams:
    """`sampling` with the length that fits after the prompt.

    `asked` is the field and its value if the client gave a length, which must fit; else it is `default`, or all the
    rest of the context, whichever is less.
    """
    room = facts.max_model_len - num_prompt_tokens
    if asked is None:
        return replace(sampling, max_tokens=room if default is None else min(default, room))
    param, max_tokens = asked
    if max_tokens > room:
        raise ContextOverflow(
            f"The prompt has {num_prompt_tokens} tokens and {param} is {max_tokens}; together they must be at most "
            f"{facts.max_model_len}. Shorten the prompt or lower {param}",
            param=param,
        )
    return sampling if sampling.max_tokens == max_tokens else replace(sampling, max_tokens=max_tokens)

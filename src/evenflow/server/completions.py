"""/v1/completions: text in, text on. With `echo`, the prompt comes first, with its log-probabilities if asked."""

from dataclasses import replace

import msgspec

from evenflow.core.plan import TokenLogprobs
from evenflow.engine.api import Delta
from evenflow.server.encoding import Tokenizer
from evenflow.server.endings import finish, stop_reason
from evenflow.server.front import Front
from evenflow.server.jobs import Call, Draft, Job
from evenflow.server.logprobs import OffsetLogprobs, joined
from evenflow.server.prompts import split_prompts
from evenflow.server.replies import Completion, CompletionChoice, CompletionLogprobs, Usage
from evenflow.server.sampling import check_common, fit_length, require, sampling_params, text_options
from evenflow.server.schema import CompletionRequest, refuse_unserved

DEFAULT_MAX_TOKENS = 16


async def completion_job(front: Front, fields: CompletionRequest, call: Call) -> Job:
    """Raises RequestError naming the field at fault; everything that is cheap to check comes before tokenising."""
    facts, limits = front.facts(), front.limits
    front.check_model(fields.model)
    refuse_unserved(fields)
    check_common(fields, limits, num_prompts=len(split_prompts(fields.prompt, limits)))
    n = fields.n or 1
    require(fields.best_of in (None, n), "best_of", f"is served only if equal to n ({n})")
    logprobs = fields.logprobs
    in_range = logprobs is None or 0 <= logprobs <= limits.max_logprobs
    require(in_range, "logprobs", f"must be between 0 and {limits.max_logprobs}, not {logprobs}")
    options = text_options(fields, limits)
    sampling = replace(
        sampling_params(fields, facts, limits), logprobs=logprobs, prompt_logprobs=logprobs if fields.echo else None
    )
    prompts = await front.prompter.from_field(
        fields.prompt, facts, add_special_tokens=fields.add_special_tokens is not False
    )
    asked = None if fields.max_tokens is None else ("max_tokens", fields.max_tokens)
    fitted = [
        fit_length(sampling, len(prompt.token_ids), facts, asked=asked, default=DEFAULT_MAX_TOKENS)
        for prompt in prompts
    ]
    draft = Draft(
        f"cmpl-{call.request_id}", call, front.served_model_name, fields, options, front.tokenizer.eos_token_ids
    )
    return draft.job(prompts, fitted)


class CompletionFormat:
    """Writes the answer of one job."""

    def __init__(self, job: Job, tokenizer: Tokenizer, *, echo: bool) -> None:
        self._job = job
        self._choices = [ChoiceWriter(index, job, tokenizer, echo=echo) for index in range(len(job.requests))]

    def events(self, index: int, delta: Delta) -> list[msgspec.Struct]:
        choice = self._choices[index].write(delta)
        if choice is None:
            return []
        return [self._completion([choice], None if self._job.include_usage else msgspec.UNSET)]

    def usage_event(self, usage: Usage) -> msgspec.Struct:
        return self._completion([], usage)

    def whole(self, deltas: list[Delta], usage: Usage) -> msgspec.Struct:
        choices = [writer.write(delta) for writer, delta in zip(self._choices, deltas, strict=True)]
        return self._completion([choice for choice in choices if choice is not None], usage)

    def _completion(self, choices: list[CompletionChoice], usage: Usage | msgspec.UnsetType | None) -> Completion:
        job = self._job
        return Completion(
            id=job.id,
            object="text_completion",
            created=job.call.created,
            model=job.model,
            choices=choices,
            usage=usage,
        )


class ChoiceWriter:
    """One choice of a completion, across its deltas."""

    def __init__(self, index: int, job: Job, tokenizer: Tokenizer, *, echo: bool) -> None:
        self._index = index
        self._prompt = job.prompt_of(index)
        self._tokenizer = tokenizer
        self._logprobs = (
            None
            if job.requests[index].sampling.logprobs is None
            else OffsetLogprobs(tokenizer, skip_special_tokens=job.options.skip_special_tokens)
        )
        self._to_echo = echo
        self._prompt_logprobs: list[TokenLogprobs] = []

    def write(self, delta: Delta) -> CompletionChoice | None:
        """None if there is nothing to show yet."""
        # A long prompt is computed in chunks, and gives its log-probabilities chunk by chunk before the first token.
        self._prompt_logprobs += delta.prompt_logprobs
        if not delta.finish_reason and not (delta.token_ids if self._to_echo or self._logprobs else delta.text):
            return None
        text = self._echo_text() if self._to_echo else ""
        logprobs = self._echo_logprobs(text) if self._to_echo else None
        if self._logprobs:
            output = self._logprobs.output(delta.logprobs)
            logprobs = output if logprobs is None else joined(logprobs, output)
        self._to_echo = False
        return CompletionChoice(
            index=self._index,
            text=text + delta.text,
            logprobs=logprobs,
            finish_reason=finish(delta),
            stop_reason=stop_reason(delta),
        )

    def _echo_text(self) -> str:
        ids, text = self._prompt
        return self._tokenizer.decode(ids, skip_special_tokens=False) if text is None else text

    def _echo_logprobs(self, text: str) -> CompletionLogprobs | None:
        if self._logprobs is None:
            return None
        return self._logprobs.prompt(self._prompt.token_ids, text, self._prompt_logprobs)

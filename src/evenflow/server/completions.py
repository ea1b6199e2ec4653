"""/v1/completions: text in, text on. With `echo`, the prompt comes first, with its log-probabilities if asked."""

from dataclasses import replace

import msgspec

from evenflow.engine.api import Delta
from evenflow.server.endings import finish, stop_reason
from evenflow.server.front import Front
from evenflow.server.jobs import Call, Draft, Job
from evenflow.server.logprobs import OffsetLogprobs, no_logprobs
from evenflow.server.prompts import split_prompts
from evenflow.server.replies import Completion, CompletionChoice, Usage
from evenflow.server.sampling import (
    check_common,
    check_logprob_entries,
    fit_length,
    require,
    sampling_params,
    text_options,
)
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
    check_logprob_entries(prompts, fitted, n, limits.max_logprob_entries)
    draft = Draft(
        f"cmpl-{call.request_id}", call, front.served_model_name, fields, options, front.tokenizer.eos_token_ids
    )
    return draft.job(prompts, fitted)


class CompletionFormat:
    """Writes the answer of one job."""

    def __init__(self, job: Job, front: Front, *, echo: bool) -> None:
        self._job = job
        self._choices = [ChoiceWriter(index, job, front, echo=echo) for index in range(len(job.requests))]

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

    def __init__(self, index: int, job: Job, front: Front, *, echo: bool) -> None:
        self._index = index
        self._logprobs: OffsetLogprobs | None = None
        self._echo: Echo | None = None
        if job.requests[index].sampling.logprobs is not None:
            self._logprobs = OffsetLogprobs(
                front.tokenizer, front.token_texts, skip_special_tokens=job.options.skip_special_tokens
            )
        if echo:
            ids, text = job.prompt_of(index)
            shown = front.tokenizer.decode(ids, skip_special_tokens=False) if text is None else text
            self._echo = Echo(ids[0], shown, self._logprobs)

    def write(self, delta: Delta) -> CompletionChoice | None:
        """None if there is nothing to show yet."""
        if self._echo:
            self._echo.take(delta)
        if not delta.finish_reason and not (delta.token_ids if self._echo or self._logprobs else delta.text):
            return None
        text = self._echo.text if self._echo else ""
        logprobs = None
        if self._logprobs:
            logprobs = self._echo.logprobs if self._echo else no_logprobs()
            self._logprobs.output(logprobs, delta.logprobs)
        self._echo = None
        return CompletionChoice(
            index=self._index,
            text=text + delta.text,
            logprobs=logprobs,
            finish_reason=finish(delta),
            stop_reason=stop_reason(delta),
        )


class Echo:
    """A prompt that goes out with the first token.

    A long prompt is computed in chunks, and gives its log-probabilities chunk by chunk before that.
    """

    def __init__(self, first_token_id: int, text: str, writer: OffsetLogprobs | None) -> None:
        self.text = text
        self.logprobs = no_logprobs()
        self._writer = writer
        if writer:
            writer.first_of_prompt(self.logprobs, first_token_id, text)

    def take(self, delta: Delta) -> None:
        if self._writer:
            self._writer.rest_of_prompt(self.logprobs, delta.prompt_logprobs, self.text)

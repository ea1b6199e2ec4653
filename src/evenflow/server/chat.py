"""/v1/chat/completions: a conversation in, the assistant's next message out."""

from dataclasses import replace

import msgspec

from evenflow.engine.api import Delta
from evenflow.server.endings import finish, stop_reason
from evenflow.server.front import Front
from evenflow.server.jobs import Call, Draft, Job
from evenflow.server.logprobs import chat_logprobs
from evenflow.server.prompts import Conversation
from evenflow.server.replies import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    Usage,
)
from evenflow.server.sampling import (
    check_common,
    check_logprob_entries,
    fit_length,
    require,
    sampling_params,
    text_options,
)
from evenflow.server.schema import ChatRequest, refuse_unserved


async def chat_job(front: Front, fields: ChatRequest, call: Call) -> Job:
    """Raises RequestError naming the field at fault; everything that is cheap to check comes before tokenising."""
    facts, limits = front.facts(), front.limits
    front.check_model(fields.model)
    refuse_unserved(fields)
    check_common(fields, limits, num_prompts=1)
    asked = asked_length(fields)
    top = fields.top_logprobs
    in_range = top is None or 0 <= top <= limits.max_logprobs
    require(in_range, "top_logprobs", f"must be between 0 and {limits.max_logprobs}, not {top}")
    require(top is None or bool(fields.logprobs), "top_logprobs", "needs logprobs to be true")
    options = text_options(fields, limits)
    sampling = replace(sampling_params(fields, facts, limits), logprobs=(top or 0) if fields.logprobs else None)
    prompt = await front.prompter.from_messages(Conversation.of(fields), facts)
    fitted = fit_length(sampling, len(prompt.token_ids), facts, asked=asked, default=None)
    check_logprob_entries([prompt], [fitted], fields.n or 1, limits.max_logprob_entries)
    draft = Draft(
        f"chatcmpl-{call.request_id}", call, front.served_model_name, fields, options, front.tokenizer.eos_token_ids
    )
    return draft.job([prompt], [fitted])


def asked_length(fields: ChatRequest) -> tuple[str, int] | None:
    """The field that says how long the answer may be, and what it says."""
    newer, older = fields.max_completion_tokens, fields.max_tokens
    require(
        newer is None or older in (None, newer), "max_tokens", "contradicts max_completion_tokens; send one of them"
    )
    if newer is not None:
        require(newer >= 1, "max_completion_tokens", f"must be at least 1, not {newer}")
        return "max_completion_tokens", newer
    return None if older is None else ("max_tokens", older)


class ChatFormat:
    """Writes the answer of one job."""

    def __init__(self, job: Job, front: Front) -> None:
        self._job = job
        self._front = front
        self._with_logprobs = job.requests[0].sampling.logprobs is not None
        self._opened: set[int] = set()

    def events(self, index: int, delta: Delta) -> list[msgspec.Struct]:
        events: list[msgspec.Struct] = []
        if index not in self._opened:
            self._opened.add(index)
            opening = ChatDelta(role="assistant", content="")
            events.append(self._chunk([ChatChunkChoice(index, opening, logprobs=None, finish_reason=None)]))
        logprobs = self._logprobs(delta)
        if delta.text or (logprobs and logprobs.content) or delta.finish_reason:
            content = ChatDelta(content=delta.text) if delta.text or not delta.finish_reason else ChatDelta()
            choice = ChatChunkChoice(index, content, logprobs, finish(delta), stop_reason(delta))
            events.append(self._chunk([choice]))
        return events

    def usage_event(self, usage: Usage) -> msgspec.Struct:
        return self._chunk([], usage)

    def whole(self, deltas: list[Delta], usage: Usage) -> msgspec.Struct:
        job = self._job
        choices = [
            ChatChoice(
                index,
                ChatMessage(role="assistant", content=delta.text),
                self._logprobs(delta),
                finish(delta),
                stop_reason(delta),
            )
            for index, delta in enumerate(deltas)
        ]
        return ChatCompletion(
            id=job.id,
            object="chat.completion",
            created=job.call.created,
            model=job.model,
            choices=choices,
            usage=usage,
        )

    def _logprobs(self, delta: Delta) -> ChatLogprobs | None:
        if not self._with_logprobs:
            return None
        return chat_logprobs(self._front.tokenizer, self._front.token_texts, delta.logprobs)

    def _chunk(self, choices: list[ChatChunkChoice], usage: Usage | None = None) -> ChatChunk:
        job = self._job
        return ChatChunk(
            id=job.id,
            object="chat.completion.chunk",
            created=job.call.created,
            model=job.model,
            choices=choices,
            usage=usage if job.include_usage else msgspec.UNSET,
        )

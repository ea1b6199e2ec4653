"""Before a run: is the server there, what may be asked of it, and of what can prompts be made for it?

A few tiny requests are sent, the most exact form first, until one is answered as a stream of tokens: token ids rather
than words, a running count of tokens rather than a total, `ignore_eos` rather than hope. Whatever is wrong with a
server is said here, in a sentence, before a long run has measured nothing.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from evenflow.replay.client import run_load
from evenflow.replay.pacing import Patience
from evenflow.replay.prompts import GivenOr, IdPrompts, PromptMaker, WordPrompts
from evenflow.replay.request import ObservedRequest, PlannedRequest, Reason
from evenflow.replay.server_facts import ServerFacts, ServerQuestions, ServerUnusable
from evenflow.replay.target import Endpoint, Target
from evenflow.workload.words import WORDS

_PROMPT_TOKENS = 24
_MAX_TOKENS = 4
_ENOUGH_WORDS = 48
_PATIENCE = Patience(silence_seconds=60.0, token_seconds=60.0, whole_seconds=120.0)

_COUNTED = {"ignore_eos": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
_TOTAL = {"ignore_eos": True, "stream_options": {"include_usage": True}}
_PLAIN = {"ignore_eos": None, "stream_options": {"include_usage": True}}
_BARE = {"ignore_eos": None, "stream_options": None}
FIELD_SETS: Sequence[Mapping[str, object]] = (_COUNTED, _TOTAL, _PLAIN, _BARE)


class LocalTokenizer(Protocol):
    """What is needed of a tokenizer on this machine."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str, /, *, add_special_tokens: bool = ...) -> Sequence[int]: ...

    def is_special(self, token_id: int, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class Ready:
    """What the run is sent with. `notes` are for the report."""

    target: Target
    facts: ServerFacts
    prompts: PromptMaker
    notes: tuple[str, ...]


async def check(
    target: Target,
    questions: ServerQuestions,
    *,
    model: str | None,
    tokenizer: LocalTokenizer | None,
    seed: int,
) -> Ready:
    """Raises ServerUnusable. `target` comes without a model."""
    facts = await questions.facts(model)
    target = replace(target, model=facts.model)
    refusals: list[str] = []
    async for maker in _makers(questions, facts.model, target.endpoint, tokenizer, seed):
        for fields in FIELD_SETS:
            attempt = replace(target, fields={**fields, **target.fields})
            probe = await _probe(attempt, maker, f"preflight-{seed:x}-{len(refusals)}")
            if probe.failure is None:
                return _ready(attempt, facts, maker, probe, seed)
            if not _may_be_the_form(probe):
                raise ServerUnusable(f"{facts.model} does not answer a request of {_MAX_TOKENS} tokens: {probe.error}")
            refusals.append(probe.error or "")
    if not refusals:
        raise ServerUnusable("no prompts can be made: no word is a single token of this tokenizer")
    raise ServerUnusable(f"{facts.model} refuses every form of request; the plainest one with {refusals[-1]}")


def _may_be_the_form(probe: ObservedRequest) -> bool:
    """Whether another form of the same request might be taken."""
    assert probe.failure is not None
    if probe.failure.reason is Reason.HTTP:
        return not probe.failure.detail.startswith(("HTTP 401", "HTTP 403", "HTTP 404", "HTTP 429", "HTTP 503"))
    return False


async def _probe(target: Target, maker: PromptMaker, name: str) -> ObservedRequest:
    plan = PlannedRequest(-1, name, 0.0, _PROMPT_TOKENS, _MAX_TOKENS)
    (observed,) = (await run_load(target, [plan], maker, patience=_PATIENCE)).observed
    return observed


def _ready(target: Target, facts: ServerFacts, maker: PromptMaker, probe: ObservedRequest, seed: int) -> Ready:
    notes = [f"prompts are {maker.form}"]
    if target.fields.get("ignore_eos") is None:
        notes.append("the server takes no ignore_eos: answers may be shorter than asked for")
    had = probe.num_prompt_tokens
    if had is None:
        notes.append("the server does not say how many tokens a prompt has: lengths are not checked")
    elif had != _PROMPT_TOKENS and isinstance(maker, WordPrompts):
        maker = maker.adding(had - _PROMPT_TOKENS)
        notes.append(f"the server adds {had - _PROMPT_TOKENS} tokens to every text; prompts are shorter by as many")
    return Ready(target, facts, GivenOr(maker), tuple(notes))


async def _makers(
    questions: ServerQuestions, model: str, endpoint: Endpoint, tokenizer: LocalTokenizer | None, seed: int
) -> AsyncIterator[PromptMaker]:
    """The most exact first."""
    if tokenizer is not None:
        ids = [index for index in range(tokenizer.vocab_size) if not tokenizer.is_special(index)]
    else:
        ids = await _ids_of(questions, model)
    if ids and endpoint is Endpoint.COMPLETIONS:
        yield IdPrompts(ids, seed)
    if tokenizer is not None:
        words = [word for word in _spaced() if len(tokenizer.encode(word, add_special_tokens=False)) == 1]
    else:
        words = await _words_of(questions, model)
    if words:
        yield WordPrompts(words, seed)


async def _ids_of(questions: ServerQuestions, model: str) -> list[int]:
    """Those of ordinary text: no special token is among them."""
    ids = await questions.encode(model, "".join(_spaced()))
    if ids is None:
        raise ServerUnusable(
            "the server has no /tokenize, so prompts of an exact length cannot be made; give --tokenizer, the folder "
            "or .gguf file of its model"
        )
    return sorted(set(ids))


async def _words_of(questions: ServerQuestions, model: str) -> list[str]:
    """Words of one token each: asked for in halves, until there are enough or none is left."""
    single: list[str] = []
    rest = [list(_spaced())]
    while rest and len(single) < _ENOUGH_WORDS:
        part = rest.pop()
        tokens = await questions.encode(model, "".join(part))
        if tokens is not None and len(tokens) == len(part):
            single += part
        elif len(part) > 1:
            rest += [part[: len(part) // 2], part[len(part) // 2 :]]
    return single


def _spaced() -> Iterator[str]:
    return (f" {word}" for word in WORDS)


def counter(tokenizer: LocalTokenizer) -> Callable[[str], int]:
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))

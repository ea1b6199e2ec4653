"""From what the client calls a prompt to token ids that are sure to fit the model.

A prompt comes as text, as token ids, or as a conversation that the model's chat template turns into text. Whatever it
was, the ids that leave here are in the vocabulary and leave room for at least one token in the context.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from evenflow.core.errors import ContextOverflow, InvalidRequest
from evenflow.engine.api import EngineFacts
from evenflow.engine.arguments import check_token_ids
from evenflow.server.encoding import Lanes, TemplateMessage, Tokenizer
from evenflow.server.limits import ServerLimits
from evenflow.server.schema import ChatRequest, Message, TemplateValue, TokenizeRequest, refuse_unserved

# `developer` is what newer clients call `system`; models know the older name.
ROLES: Mapping[str, str] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

RESERVED_VARIABLES = frozenset({"self", "messages", "add_generation_prompt", "tools", "documents"})


class Prompt(NamedTuple):
    """`text` is what the client sent if it sent text."""

    token_ids: tuple[int, ...]
    text: str | None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns for a chat template. Templates write their own special tokens, so encoding usually adds none."""

    messages: list[Message] | None
    add_generation_prompt: bool
    add_special_tokens: bool
    variables: Mapping[str, TemplateValue]

    @classmethod
    def of(cls, fields: ChatRequest | TokenizeRequest) -> Self:
        return cls(
            messages=fields.messages,
            add_generation_prompt=fields.add_generation_prompt is not False,
            add_special_tokens=bool(fields.add_special_tokens),
            variables=fields.chat_template_kwargs or {},
        )


@dataclass(frozen=True, slots=True)
class Prompter:
    """Makes prompts. `max_chars_per_token` is None where no such bound holds for the tokenizer."""

    tokenizer: Tokenizer
    lanes: Lanes
    limits: ServerLimits
    max_chars_per_token: int | None

    async def from_field(
        self, field: str | list[str | int | list[int]] | None, facts: EngineFacts, *, add_special_tokens: bool
    ) -> list[Prompt]:
        """The prompts of a completion request."""
        texts_or_ids = split_prompts(field, self.limits)
        texts = [prompt for prompt in texts_or_ids if isinstance(prompt, str)]
        if not texts:
            return [self._checked(ids, None, facts, "prompt") for ids in texts_or_ids if not isinstance(ids, str)]
        for text in texts:
            self._refuse_if_hopeless(text, facts, "prompt")
        encoded = await self.encode(texts, "prompt", add_special_tokens=add_special_tokens)
        return [self._checked(ids, text, facts, "prompt") for ids, text in zip(encoded, texts, strict=True)]

    async def from_messages(self, conversation: Conversation, facts: EngineFacts) -> Prompt:
        text = await self.render(conversation)
        self._refuse_if_hopeless(text, facts, "messages")
        (ids,) = await self.encode([text], "messages", add_special_tokens=conversation.add_special_tokens)
        return self._checked(ids, text, facts, "messages")

    async def render(self, conversation: Conversation) -> str:
        """The text that the model's chat template makes of a conversation."""
        turns = plain_messages(conversation.messages, self.limits)
        check_variables(conversation.variables, self.limits)
        num_chars = sum(len(turn["content"]) for turn in turns)
        return await self.lanes.run(num_chars, lambda: self._render(turns, conversation))

    async def encode(self, texts: Sequence[str], param: str, *, add_special_tokens: bool) -> list[list[int]]:
        """`param` is the field that the texts came in."""
        encode = self.tokenizer.encode
        try:
            return await self.lanes.run(
                sum(map(len, texts)), lambda: [encode(text, add_special_tokens=add_special_tokens) for text in texts]
            )
        except InvalidRequest as error:
            raise InvalidRequest(f"{param}: {error.message}", param=param) from error

    def _refuse_if_hopeless(self, text: str, facts: EngineFacts, param: str) -> None:
        """Spares the tokenizer a text that cannot fit, however few tokens it makes of it."""
        if self.max_chars_per_token is not None and len(text) > facts.max_model_len * self.max_chars_per_token:
            raise ContextOverflow(
                f"{param} has {len(text)} characters; the context holds {facts.max_model_len} tokens. Send less text",
                param=param,
            )

    def _render(self, turns: Sequence[TemplateMessage], conversation: Conversation) -> str:
        template = self.tokenizer.chat_template
        if template is None:
            raise InvalidRequest("This model has no chat template; use /v1/completions", param="messages")
        try:
            return template.render(
                turns, add_generation_prompt=conversation.add_generation_prompt, **conversation.variables
            )
        except InvalidRequest:
            raise
        except Exception as error:
            # A template is a program that runs on what the client sent; where it fails, that is what it failed on.
            reason = f"the model's chat template does not take these messages: {error}"
            raise InvalidRequest(reason, param="messages") from error

    def _checked(self, ids: Sequence[int], text: str | None, facts: EngineFacts, param: str) -> Prompt:
        if not ids:
            raise InvalidRequest(f"{param} must not be empty", param=param)
        if len(ids) >= facts.max_model_len:
            raise ContextOverflow(
                f"{param} has {len(ids)} tokens; the context holds {facts.max_model_len}, one of them for output. "
                f"Send a shorter prompt",
                param=param,
            )
        check_token_ids(ids, facts.vocab_size, param)
        return Prompt(tuple(ids), text)


def split_prompts(field: str | list[str | int | list[int]] | None, limits: ServerLimits) -> list[str | list[int]]:
    """The prompts that the four legal shapes of `prompt` stand for, none of them empty."""
    if field is None:
        raise InvalidRequest("prompt is missing", param="prompt")
    prompts: list[str | list[int]] = [field] if isinstance(field, str) else _split_list(field)
    if not prompts or not all(prompts):
        raise InvalidRequest("prompt must not be empty", param="prompt")
    if len(prompts) > limits.max_prompts:
        message = f"prompt has {len(prompts)} prompts; this server takes at most {limits.max_prompts} in a request"
        raise InvalidRequest(message, param="prompt")
    return prompts


def _split_list(items: list[str | int | list[int]]) -> list[str | list[int]]:
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) == len(items):
        return list(texts)
    id_lists = [item for item in items if isinstance(item, list)]
    if len(id_lists) == len(items):
        return list(id_lists)
    ids = [item for item in items if isinstance(item, int)]
    if len(ids) == len(items):
        return [ids]
    message = "prompt must be text, a list of texts, a list of token ids or a list of such lists, not a mixture"
    raise InvalidRequest(message, param="prompt")


def plain_messages(messages: list[Message] | None, limits: ServerLimits) -> list[dict[str, str]]:
    """Messages as templates take them: role and one text."""
    if not messages:
        raise InvalidRequest("messages must not be empty", param="messages")
    if len(messages) > limits.max_messages:
        reason = f"messages has {len(messages)} messages; this server takes at most {limits.max_messages}"
        raise InvalidRequest(reason, param="messages")
    return [_plain_message(message, f"messages[{position}]") for position, message in enumerate(messages)]


def _plain_message(message: Message, path: str) -> dict[str, str]:
    refuse_unserved(message, f"{path}.")
    if message.role not in ROLES:
        known = ", ".join(ROLES)
        raise InvalidRequest(f"{path}.role must be one of {known}, not {message.role[:64]!r}", param=f"{path}.role")
    turn = {"role": ROLES[message.role], "content": _plain_content(message.content, f"{path}.content")}
    return turn if message.name is None else {**turn, "name": message.name}


def _plain_content(content: str | list[dict[str, Any]] | None, path: str) -> str:
    match content:
        case None:
            raise InvalidRequest(f"{path} is missing", param=path)
        case str():
            return content
        case parts:
            return "\n".join(_part_text(part, f"{path}[{position}]") for position, part in enumerate(parts))


def _part_text(part: dict[str, Any], path: str) -> str:
    kind = part.get("type")
    if kind != "text":
        shown = str(kind)[:64]
        raise InvalidRequest(f"{path} is of type {shown!r}; this model takes text parts only", param=f"{path}.type")
    text = part.get("text")
    if not isinstance(text, str):
        raise InvalidRequest(f"{path}.text must be text", param=f"{path}.text")
    if unknown := sorted(part.keys() - {"type", "text"}):
        raise InvalidRequest(f"Unknown field {unknown[0][:64]!r}; leave it out", param=f"{path}.{unknown[0][:64]}")
    return text


def check_variables(variables: Mapping[str, TemplateValue], limits: ServerLimits) -> None:
    param = "chat_template_kwargs"
    if len(variables) > limits.max_template_kwargs:
        raise InvalidRequest(f"{param} has more than {limits.max_template_kwargs} entries; send fewer", param=param)
    if reserved := sorted(RESERVED_VARIABLES & variables.keys()):
        raise InvalidRequest(f"{param} must not set {reserved[0]!r}", param=param)

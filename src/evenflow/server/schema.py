"""What a client may send to the generation endpoints, field by field.

The fields are OpenAI's, plus the sampling fields that vLLM added and its users know. A field is in one of four groups:
served; ignored because nothing in the answer depends on it; refused unless its value asks for nothing (`REFUSED`);
unknown, which is an error that names the nearest known field. Nothing that changes the answer is silently dropped.
"""

from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from evenflow.core.errors import InvalidRequest


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What completions and chat completions have in common."""

    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    n: int | None = None
    min_tokens: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    add_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    cache_salt: str | None = None

    # For the scheduler; see wishes.py.
    priority: int | None = None
    ttft_deadline_ms: float | None = None
    service_tier: str | None = None
    user: str | None = None

    # Ignored.
    metadata: object = None
    store: bool | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: object = None
    prompt_cache_options: object = None

    # Refused; see REFUSED.
    response_format: object = None
    structured_outputs: object = None
    guided_json: object = None
    guided_regex: object = None
    guided_choice: object = None
    guided_grammar: object = None
    use_beam_search: object = None
    length_penalty: object = None
    early_stopping: object = None
    bad_words: object = None
    allowed_token_ids: object = None
    logits_processors: object = None
    prompt_logprobs: object = None
    truncate_prompt_tokens: object = None
    spaces_between_special_tokens: object = None
    return_token_ids: object = None
    return_tokens_as_token_ids: object = None
    moderation: object = None


class CompletionRequest(GenerationFields, kw_only=True):
    prompt: str | list[str | int | list[int]] | None = None
    echo: bool | None = None
    logprobs: int | None = None

    # Refused.
    suffix: object = None
    best_of: int | None = None


class Message(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One turn. The refused fields are there because clients send an assistant's answer back as they got it."""

    role: str
    content: str | list[dict[str, Any]] | None = None  # Any: parts are told apart by their "type" after decoding
    name: str | None = None

    # Refused.
    refusal: object = None
    annotations: object = None
    audio: object = None
    function_call: object = None
    tool_calls: object = None
    tool_call_id: object = None


TemplateValue = str | int | float | bool | None


class ChatRequest(GenerationFields, kw_only=True):
    messages: list[Message] | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, TemplateValue] | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    # Ignored.
    parallel_tool_calls: bool | None = None

    # Refused.
    tools: object = None
    tool_choice: object = None
    functions: object = None
    function_call: object = None
    audio: object = None
    modalities: object = None
    prediction: object = None
    reasoning_effort: object = None
    verbosity: object = None
    web_search_options: object = None
    echo: object = None
    continue_final_message: object = None
    chat_template: object = None
    documents: object = None


class TokenizeRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, TemplateValue] | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    model: str | None = None
    tokens: list[int] | None = None


# Field -> the values, besides null, that ask for nothing.
REFUSED: Mapping[str, tuple[object, ...]] = {
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "use_beam_search": (False,),
    "length_penalty": (1.0,),
    "early_stopping": (False,),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "logits_processors": ([],),
    "prompt_logprobs": (),
    "truncate_prompt_tokens": (),
    "spaces_between_special_tokens": (True,),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "moderation": (),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "web_search_options": (),
    "echo": (False,),
    "continue_final_message": (False,),
    "chat_template": (),
    "documents": ([],),
    "refusal": (),
    "annotations": ([],),
    "tool_calls": ([],),
    "tool_call_id": (),
}


# Per kind of object, those of its fields that REFUSED is about: one that is served has a type of its own.
REFUSED_FIELDS: Mapping[type, tuple[str, ...]] = {
    kind: tuple(name for name, hint in get_type_hints(kind).items() if hint is object and name in REFUSED)
    for kind in (CompletionRequest, ChatRequest, Message)
}


def refuse_unserved(fields: CompletionRequest | ChatRequest | Message, path: str = "") -> None:
    """Raises InvalidRequest for a field that asks for something evenflow does not do. `path` leads to `fields`."""
    for name in REFUSED_FIELDS[type(fields)]:
        value = getattr(fields, name)
        if value is not None and value not in REFUSED[name]:
            param = path + name
            raise InvalidRequest(f"{param} is not supported here; leave it out", param=param)

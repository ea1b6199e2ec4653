"""What Python callers hand to an engine, checked before it is believed: each fault is one InvalidRequest by name."""

import operator
from collections.abc import Mapping, Sequence

from evenflow.core.errors import InvalidRequest
from evenflow.core.kinds import require_text, shown, wrong_kind
from evenflow.core.request import SamplingParams
from evenflow.engine.api import TextOptions

Prompt = str | Sequence[int]
Message = Mapping[str, object]


def prompts_of(prompts: Prompt | Sequence[Prompt]) -> list[str | tuple[int, ...]]:
    """One prompt (text, or token ids) or several of them, as several."""
    if isinstance(prompts, str):
        return [prompts]
    several = _listed("prompts", prompts, "text, a list of token ids, or a list of such prompts")
    if several and isinstance(several[0], int):
        return [token_ids_of("prompts", several)]
    return [_prompt_of(f"prompts[{index}]", prompt) for index, prompt in enumerate(several)]


def prompt_of(prompt: Prompt) -> str | tuple[int, ...]:
    return _prompt_of("prompt", prompt)


def _prompt_of(param: str, prompt: object) -> str | tuple[int, ...]:
    if isinstance(prompt, str):
        return prompt
    return token_ids_of(param, _listed(param, prompt, "text or a list of token ids"))


def token_ids_of(param: str, ids: Sequence[object]) -> tuple[int, ...]:
    """`ids` as Python's own integers; numpy's are taken, floats and bools are not."""
    try:
        if bool not in set(map(type, ids)):
            return tuple(map(operator.index, ids))  # type: ignore[arg-type] # what is no integer raises
    except TypeError:
        pass
    wrong = (i for i, value in enumerate(ids) if isinstance(value, bool) or not hasattr(value, "__index__"))
    index = next(wrong, 0)
    raise wrong_kind(f"{param}[{index}]", "a token id, which is an integer", ids[index])


def check_token_ids(ids: Sequence[int], vocab_size: int, param: str) -> None:
    for outermost in (min(ids, default=0), max(ids, default=0)):
        if not 0 <= outermost < vocab_size:
            message = f"{param} has the token id {shown(outermost)}; ids must be between 0 and {vocab_size - 1}"
            raise InvalidRequest(message, param=param)


def conversations_of(messages: Sequence[Message] | Sequence[Sequence[Message]]) -> list[list[Message]]:
    """One conversation or several, as several."""
    wanted = 'a list of messages such as {"role": "user", "content": "Hello"}, or a list of such lists'
    several = _listed("messages", messages, wanted)
    if several and isinstance(several[0], Mapping):
        return [_conversation_of("messages", several)]
    return [_conversation_of(f"messages[{i}]", _listed(f"messages[{i}]", one, wanted)) for i, one in enumerate(several)]


def _conversation_of(param: str, turns: Sequence[object]) -> list[Message]:
    conversation: list[Message] = []
    for index, turn in enumerate(turns):
        if not isinstance(turn, Mapping):
            raise wrong_kind(f"{param}[{index}]", 'a message such as {"role": "user", "content": "Hello"}', turn)
        for name in ("role", "content"):
            require_text(f"{param}[{index}].{name}", turn.get(name))
        conversation.append(turn)
    if not conversation:
        raise InvalidRequest(f"{param} must not be empty", param=param)
    return conversation


def samplings_of(sampling: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    """One for each of `count` prompts."""
    if sampling is None or isinstance(sampling, SamplingParams):
        return [sampling_of(sampling)] * count
    each = _listed("sampling", sampling, "SamplingParams, or a list of them, one for each prompt")
    if len(each) != count:
        raise InvalidRequest(f"{count} prompts but {len(each)} sampling parameters", param="sampling")
    return [sampling_of(one, f"sampling[{index}]") for index, one in enumerate(each)]


def sampling_of(sampling: object, param: str = "sampling") -> SamplingParams:
    if sampling is None:
        return SamplingParams()
    if not isinstance(sampling, SamplingParams):
        raise wrong_kind(param, "SamplingParams", sampling)
    return sampling


def text_options(stop: str | Sequence[str], text: TextOptions | None) -> TextOptions:
    """`stop` is added to the stop strings of `text`."""
    if text is not None and not isinstance(text, TextOptions):
        raise wrong_kind("text", "TextOptions", text)
    options = text or TextOptions()
    stops = (stop,) if isinstance(stop, str) else _listed("stop", stop, "text or a list of texts")
    return TextOptions(
        stop=(*options.stop, *stops),  # type: ignore[arg-type] # TextOptions looks at each
        include_stop_str_in_output=options.include_stop_str_in_output,
        skip_special_tokens=options.skip_special_tokens,
        min_tokens=options.min_tokens,
    )


def _listed(param: str, value: object, wanted: str) -> Sequence[object]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        return value
    hint = "; its tolist() is" if hasattr(value, "tolist") else ""
    error = wrong_kind(param, wanted, value)
    raise InvalidRequest(f"{error.message}{hint}", param=param)

"""A model's chat template: messages in, the prompt text the model was trained to continue out."""

from collections.abc import Mapping, Sequence

import jinja2

from evenflow.core.errors import InvalidRequest, ModelError
from evenflow.models.template_sandbox import TemplateEnvironment, render

MAX_TEMPLATE_CHARACTERS = 1 << 18


class ChatTemplate:
    """`special_tokens` are what templates call `bos_token`, `eos_token`, ... Raises ModelError, naming `source`."""

    def __init__(self, text: str, special_tokens: Mapping[str, str], *, source: str) -> None:
        self._special_tokens = dict(special_tokens)
        if len(text) > MAX_TEMPLATE_CHARACTERS:
            raise ModelError(f"{source}: a chat template of {len(text)} characters is too long.")
        try:
            self._template = TemplateEnvironment().from_string(text)
        except (jinja2.TemplateError, RecursionError, SyntaxError, MemoryError) as error:
            raise ModelError(f"{source}: the chat template is not valid Jinja: {error}.") from error

    def render(
        self, messages: Sequence[Mapping[str, object]], *, add_generation_prompt: bool, **variables: object
    ) -> str:
        """Raises InvalidRequest if the template refuses the messages or does not survive them."""
        given = {
            **self._special_tokens,
            "tools": None,
            "documents": None,
            **variables,
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return render(self._template, given)
        except Exception as error:  # what a stranger's template raises can be anything
            reason = str(error) or type(error).__name__
            raise InvalidRequest(
                f"messages do not fit the chat template of the model: {reason}", param="messages"
            ) from error

"""Chat templates render like transformers renders them, and a hostile one costs little and tells nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from evenflow.core.errors import InvalidRequest, ModelError
from evenflow.models import template_sandbox
from evenflow.models.chat_template import ChatTemplate

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
GEMMA = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'<start_of_turn>model\n'}}{%- endif -%}
"""
QWEN_LIKE = """{%- macro shown(m) %}{{ m.role | upper ~ ': ' ~ m.content }}{%- endmacro %}
{%- set ns = namespace(last=-1, texts=[]) %}
{%- for m in messages[::-1] %}
    {%- if m.role == 'user' and ns.last == -1 %}{% set ns.last = loop.revindex0 %}{% endif %}
{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}{% continue %}{% endif %}
    {{- shown(m).split('</think>')[-1].lstrip('\n').replace('a', 'b') }}{{ loop.last and '!' or ', ' }}
{%- endfor %}
{{- ns.last }}{{ ['x', 'y'] | join('-') }}{{ '-'.join(['p', 'q']) }}{{ {'k': '<é>'} | tojson }}{{ dict(a=1).a }}
{%- for key, value in {'b': 1, 'a': 2} | dictsort %}{{ key }}{{ value }}{% endfor %}
{%- generation %} done{% endgeneration %}{{ range(3) | list }}{{ messages | length + 2 * 3 - 1 }}{{ 'ab' * 2 }}
"""
CHAT: Sequence[Mapping[str, object]] = (
    {"role": "system", "content": " You are terse. "},
    {"role": "user", "content": "Hi <there> & 'you'"},
    {"role": "assistant", "content": "Ha"},
    {"role": "user", "content": "naïve 日本"},
)
TOKENS = {"bos_token": "<bos>", "eos_token": "<eos>"}


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("template", [CHATML, LLAMA3, GEMMA, QWEN_LIKE], ids=["chatml", "llama3", "gemma", "qwen"])
def test_a_template_renders_as_it_does_in_transformers(template: str, first: int, add_generation_prompt: bool) -> None:
    messages = [dict(message) for message in CHAT[first:]]
    variables: dict[str, Any] = {**TOKENS, "add_generation_prompt": add_generation_prompt}  # what ** can be typed as
    expected = render_jinja_template([messages], chat_template=template, **variables)[0][0]
    ours = ChatTemplate(template, TOKENS, source="m.gguf")
    assert ours.render(messages, add_generation_prompt=add_generation_prompt) == expected


def test_variables_of_the_caller_reach_the_template() -> None:
    template = ChatTemplate("{{ enable_thinking }} {{ tools is none }}", {}, source="m.gguf")
    assert template.render([], add_generation_prompt=False, enable_thinking=False) == "False True"


def test_a_refusal_of_the_template_is_an_invalid_request_about_messages() -> None:
    template = ChatTemplate(GEMMA, TOKENS, source="m.gguf")
    with pytest.raises(InvalidRequest, match="roles must alternate") as caught:
        template.render([{"role": "assistant", "content": "x"}], add_generation_prompt=True)
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "message",
    [{"role": "user"}, {"role": "user", "content": None}, {"content": "x"}, {"role": "user", "content": [{"a": 1}]}],
)
def test_messages_that_the_template_cannot_use_are_an_invalid_request(message: dict[str, object]) -> None:
    template = ChatTemplate(CHATML, {}, source="m.gguf")
    with pytest.raises(InvalidRequest) as caught:
        template.render([message], add_generation_prompt=True)
    assert caught.value.param == "messages"


@pytest.mark.parametrize("text", ["{% for x in %}", "{{ 'a' | nofilter }}", "{% include 'x' %}{% endif %}", "{{"])
def test_a_template_that_is_not_jinja_is_a_model_error_naming_the_file(text: str) -> None:
    with pytest.raises(ModelError, match=r"m\.gguf: the chat template is not valid Jinja"):
        ChatTemplate(text, {}, source="m.gguf")


def test_a_template_of_megabytes_is_refused_unread() -> None:
    with pytest.raises(ModelError, match="too long"):
        ChatTemplate("x" * (1 << 20), {}, source="m.gguf")


HOSTILE = {
    "escape through class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "escape through a method": "{{ messages.append.__self__ }}",
    "escape through format": "{{ '{0.__class__}'.format('') }}",
    "changing the messages": "{% set _ = messages.append(1) %}",
    "including a file": "{% include '/etc/passwd' %}",
    "importing": "{% import 'os' as os %}",
    "huge range": "{% for i in range(10 ** 9) %}{% endfor %}",
    "huge range written out": "{% for i in range(1000000000) %}{% endfor %}",
    "quotes of quotes": "{% set n = namespace(x='x') %}{% for i in range(60) %}"
    "{% set n.x = n.x | tojson %}{% endfor %}",
    "escapes of escapes": "{% set n = namespace(x='\\\\') %}{% for i in range(60) %}"
    "{% set n.x = [n.x] | string %}{% endfor %}",
    "endless recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "recursive loop": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "long product": "{{ 'x' * 10 ** 10 }}",
    "long product of a list": "{{ [1] * 1000000000 }}",
    "doubling with plus": "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "doubling with tilde": "{% set n = namespace(x='x') %}{% for i in range(60) %}"
    "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "doubling with join": "{% set n = namespace(x='x') %}{% for i in range(60) %}"
    "{% set n.x = [n.x, n.x] | join %}{% endfor %}",
    "doubling with str.join": "{% set n = namespace(x='x') %}{% for i in range(60) %}"
    "{% set n.x = n.x.join([n.x, n.x]) %}{% endfor %}",
    "doubling with a macro": "{% macro d(x) %}{{ x }}{{ x }}{% endmacro %}{% set n = namespace(x='x') %}"
    "{% for i in range(60) %}{% set n.x = d(n.x) %}{% endfor %}",
    "doubling with a block": "{% set n = namespace(x='x') %}{% for i in range(60) %}"
    "{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}{% endfor %}",
    "doubling a list": "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "doubling with replace": "{% set n = namespace(x='xx') %}{% for i in range(60) %}"
    "{% set n.x = n.x.replace('x', 'xx') %}{% endfor %}",
    "doubling with the replace filter": "{% set n = namespace(x='xx') %}{% for i in range(60) %}"
    "{% set n.x = n.x | replace('x', 'xx') %}{% endfor %}",
    "padding with center": "{{ 'x'.center(10000000000) }}",
    "padding with the center filter": "{{ 'x' | center(10000000000) }}",
    "padding with ljust": "{{ 'x'.ljust(10000000000) }}",
    "padding with format": "{{ '%10000000000d' | format(1) }}",
    "padding with %": "{{ '%10000000000d' % 1 }}",
    "padding with indent": "{{ 'x' | indent(10000000000) }}",
    "padding with tojson": "{{ [1] | tojson(indent=10000000000) }}",
    "numbers without end": "{% set n = namespace(x=9) %}{% for i in range(90) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "large powers": "{{ 9 ** 9 ** 9 }}",
    "much output": "{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}",
    "endless lipsum": "{{ lipsum(n=100000000) }}",
    "its own budget": "{% set x = context['budget of this rendering'] %}{{ x.steps }}",
}

ENDLESS = {
    "nested loops": "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
    "loops in a filter": "{% for i in range(9999) %}{{ range(9999) | sum }}{% endfor %}",
    "nested loops over text": "{% set x='x'*9999 %}{% for i in x %}{% for j in x %}{% endfor %}{% endfor %}",
    "exponential recursion": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
}


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS.keys())
def test_only_the_clock_ends_a_template_of_small_steps(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_sandbox, "MAX_SECONDS", 0.1)
    template = ChatTemplate(text, {}, source="m.gguf")
    with pytest.raises(InvalidRequest, match=r"takes more than 0\.1 seconds"):
        template.render([{"role": "user", "content": "x"}], add_generation_prompt=True)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_template_ends_as_an_error(text: str) -> None:
    with pytest.raises((InvalidRequest, ModelError)):
        ChatTemplate(text, {}, source="m.gguf").render([{"role": "user", "content": "x"}], add_generation_prompt=True)


@pytest.mark.parametrize(
    "text",
    [
        "{{ raise_exception.__globals__ }}",
        "{{ '' | attr('__class__') }}",
        "{{ ['x'] | map(attribute='__class__') | first }}",
        "{{ cycler }}",
        "{{ ''.__doc__ }}",
        "{{ (range)['__class__'] }}",
    ],
)
def test_what_leads_out_of_the_sandbox_is_not_there(text: str) -> None:
    assert ChatTemplate(text, {}, source="m.gguf").render([], add_generation_prompt=True) in ("", "Undefined")

"""A Jinja environment in which a chat template cannot hurt: no way out to Python, bounded time and bounded text.

Templates come with model files and are code from strangers. Jinja's immutable sandbox keeps them from attributes and
from changing what they are given; on top of it

- each rendering may use `MAX_SECONDS` of its thread's processor time, looked at for every item of every loop and every
  call (so nested loops and recursive macros end, however slow the machine is otherwise);
- no text or list grows past `MAX_LENGTH`, whichever way it is made: `*`, `+`, `~`, join, replace, macros, blocks;
- what pads or formats to any width is not there.

The rest is what transformers offers templates: loop controls, `raise_exception`, `strftime_now`, a plain `tojson`, and
`{% generation %}` blocks, which only mark text.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import ext, nodes, runtime, visitor
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import escape

MAX_SECONDS = 1.0
MAX_LENGTH = 1 << 22

# No template can say this name, so none can touch its own deadline.
_DEADLINE = "deadline of this rendering"

_WITHHELD_METHODS = frozenset(
    {"center", "encode", "expandtabs", "format", "format_map", "ljust", "maketrans", "rjust", "translate", "zfill"}
)
_WITHHELD_FILTERS = frozenset(
    {"batch", "center", "filesizeformat", "format", "indent", "pprint", "random", "slice", "striptags", "truncate"}
    | {"urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"}
)


def render(template: jinja2.Template, variables: dict[str, object]) -> str:
    """Render within the limits; raises whatever the template makes Jinja or Python raise."""
    pieces: list[str] = []
    length = 0
    for piece in template.generate({**variables, _DEADLINE: time.thread_time() + MAX_SECONDS}):
        length = _bounded(length + len(piece))
        pieces.append(piece)
    return "".join(pieces)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "+", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[ext.loopcontrols, _GenerationBlock], cache_size=0
        )
        self.filters = {name: filter_ for name, filter_ in self.filters.items() if name not in _WITHHELD_FILTERS}
        self.filters |= {"tojson": _tojson, "join": _join_filter, "replace": _replace, "string": _string}
        self.filters |= {"escape": _escape, "e": _escape, "forceescape": _escape, "timed": _timed, "concat": _concat}
        self.globals = {
            "range": self.globals["range"],
            "dict": _make_dict,
            "namespace": self.globals["namespace"],
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """How compiled templates put macros and blocks together."""
        return _joined(list(pieces), "")

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Rewrites loops to look at the time, and `~` to measure what it joins."""
        template = super()._parse(source, name, filename)
        for loop in list(template.find_all(nodes.For)):
            loop.iter = nodes.Filter(loop.iter, "timed", [], [], None, None, lineno=loop.lineno)
        measured: nodes.Template = _MeasureConcat().visit(template)
        return measured

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # any object of a template
        if isinstance(obj, str) and attr in _WITHHELD_METHODS:
            return False
        if isinstance(obj, bytes | bytearray | type):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:  # Jinja would let str.format past is_safe_attribute
        return None

    def call(__self, __context: runtime.Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        _check_time(__context)
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", None)
        if isinstance(owner, str) and name in ("replace", "join"):
            for scope in ("_loop_vars", "_block_vars"):  # how Jinja passes on a template's variables
                kwargs.pop(scope, None)
            return _replace(owner, *args, **kwargs) if name == "replace" else _join(owner, *args, **kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: runtime.Context, operator: str, left: Any, right: Any) -> Any:
        _check_time(context)
        match operator:
            case "*" if isinstance(left, int | float) and isinstance(right, int | float):
                return _bounded_number(left) * _bounded_number(right)
            case "*":
                sequence, times = (left, right) if isinstance(right, int) else (right, left)
                _bounded(len(sequence) * max(0, times))
            case "+" if not isinstance(left, int | float):
                _bounded(len(left) + len(right))
            case "%" if isinstance(left, str):
                raise jinja2.TemplateError("formatting with % is not available in chat templates")
            case "**":
                raise jinja2.TemplateError("** is not available in chat templates")
            case _:
                pass
        return super().call_binop(context, operator, left, right)


def _check_time(context: runtime.Context) -> None:
    deadline = context.resolve_or_missing(_DEADLINE)
    if isinstance(deadline, float) and time.thread_time() > deadline:  # it is missing while Jinja folds constants
        raise jinja2.TemplateError(f"the chat template takes more than {MAX_SECONDS} seconds")


def _bounded(length: int) -> int:
    if length > MAX_LENGTH:
        raise jinja2.TemplateError(f"the chat template makes a text or list longer than {MAX_LENGTH}")
    return length


def _bounded_number(number: float) -> float:
    if abs(number) > 2.0**63:
        raise jinja2.TemplateError("the chat template computes a number that is too large")
    return number


def _bounded_text(text: str) -> str:
    _bounded(len(text))
    return text


@jinja2.pass_context
def _timed(context: runtime.Context, items: Iterable[object]) -> Iterator[object]:
    for item in items:
        _check_time(context)
        yield item


def _joined(parts: Sequence[str], separator: str) -> str:
    _bounded(sum(map(len, parts)) + len(separator) * max(0, len(parts) - 1))
    return separator.join(parts)


def _join(separator: str, items: Iterable[object]) -> str:
    return _joined([str(item) for item in items], separator)


def _concat(parts: Sequence[object]) -> str:
    return _join("", parts)


@jinja2.pass_context
def _join_filter(context: runtime.Context, items: Iterable[object], d: str = "", attribute: str | None = None) -> str:
    values = _timed(context, items)
    if attribute is not None:
        values = (context.environment.getitem(value, attribute) for value in values)
    return _join(str(d), values)


def _replace(text: object, old: object, new: object, count: int = -1) -> str:
    text, old, new = str(text), str(old), str(new)
    matches = text.count(old) if count < 0 else min(count, text.count(old))
    _bounded(len(text) + matches * max(0, len(new) - len(old)))
    return text.replace(old, new, count)


def _string(value: object) -> str:
    return _bounded_text(str(value))


def _escape(value: object) -> str:
    return _bounded_text(str(escape(str(value))))


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Not Jinja's own, which escapes for HTML."""
    if indent is not None and not 0 <= indent <= 16:
        raise jinja2.TemplateError("tojson indents by 0 to 16")
    return _bounded_text(
        json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    )


def _raise_exception(message: object) -> None:
    raise jinja2.TemplateError(str(message))


def _strftime_now(format: str) -> str:
    if len(format) > 100:
        raise jinja2.TemplateError("strftime_now takes a format of at most 100 characters")
    return datetime.now().strftime(format)


def _make_dict(*args: Any, **kwargs: Any) -> dict[object, object]:
    return dict(*args, **kwargs)


class _MeasureConcat(visitor.NodeTransformer):
    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return nodes.Filter(nodes.List(node.nodes), "concat", [], [], None, None, lineno=node.lineno)


class _GenerationBlock(ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks what the model wrote; here it is just its text."""

    tags = {"generation"}  # noqa: RUF012  # Jinja declares it as an instance variable

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)

"""A field of a request is of the kind that it says; what is not is refused by name, in one sentence.

From HTTP every field comes checked. Python callers can hand over anything, and a float among token ids would otherwise
be found by whoever happens to be the first to index with it. A bool is no number here: `max_tokens=True` is a mistake.
"""

from evenflow.core.errors import InvalidRequest

_SHOWN_CHARS = 64


def wrong_kind(param: str, wanted: str, value: object) -> InvalidRequest:
    what = "" if value is None else f" {shown(value)}"
    return InvalidRequest(f"{param} must be {wanted}, not {type(value).__name__}{what}", param=param)


def shown(value: object) -> str:
    """`value` in a message, however long it is or badly it behaves."""
    try:
        text = repr(value)
    except Exception:  # a stranger's repr, or an int of more digits than Python likes to print
        return "that cannot be shown"
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."


def require_integer(param: str, value: object) -> None:
    if type(value) is not int:
        raise wrong_kind(param, "an integer", value)


def require_number(param: str, value: object) -> None:
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise wrong_kind(param, "a number", value)


def require_flag(param: str, value: object) -> None:
    if type(value) is not bool:
        raise wrong_kind(param, "True or False", value)


def require_text(param: str, value: object) -> None:
    if not isinstance(value, str):
        raise wrong_kind(param, "text", value)

"""Names that strangers chose, for people to read: what would not be seen, or would be obeyed, is spelt out.

A terminal obeys what it is sent: an id with an escape sequence in it could move the cursor, hide a line or set the
window's title. A drawing with a control character in it is no XML, and is not shown at all.
"""

import re

# Controls but tab and line feed, what turns the direction of writing around, and halves of characters.
_UNSEEN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Escape sequences and the like as \x1b."""
    return _UNSEEN.sub(_spelt, text)


def _spelt(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

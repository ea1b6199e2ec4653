"""The exact bytes that a token stands for.

Two alphabets are in use. Byte-level vocabularies (GPT-2's) spell each byte as one printable character; SentencePiece
ones spell a space as U+2581 and bytes without a token of their own as <0xNN>. Tokens outside the learned vocabulary
(special tokens and the like) are their text.
"""

import re
from collections.abc import Mapping
from functools import cache

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
SPACE = "\u2581"


@cache
def byte_alphabet() -> Mapping[str, int]:
    """GPT-2's: printable Latin-1 characters are themselves, every other byte is 256 + its rank among those."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


def byte_level_bytes(token: str) -> bytes:
    alphabet = byte_alphabet()
    if all(character in alphabet for character in token):
        return bytes(alphabet[character] for character in token)
    return token.encode("utf-8", "surrogatepass")


def sentencepiece_bytes(token: str) -> bytes:
    match = _BYTE_TOKEN.fullmatch(token)
    if match:
        return bytes([int(match[1], 16)])
    return token.replace(SPACE, " ").encode("utf-8", "surrogatepass")

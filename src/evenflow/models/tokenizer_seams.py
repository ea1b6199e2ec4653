"""Where a long text may be cut, so that its pieces have, one after the other, the tokens of the whole.

The tokenizer library keeps hundreds of bytes per character while it works, so a text of megabytes is given to it piece
by piece. A *seam* is a place between a letter or digit and a space, a line break or a mark of punctuation. What makes
tokens of a text must not reach across one:

    normalizer      NFC composes nothing with what stands on the right of a seam; a space that becomes U+2581 stays one
    added tokens    found before all else; none that is in use has a seam inside
    words           byte-level vocabularies cut text into words by a regular expression. In those of the table `_SPLITS`
                    no word goes on after a letter with one of these characters, and none looks further than the first
                    character behind it, so words end at a seam, whatever stands on its other side.
    merges          stay within a word. SentencePiece vocabularies have no words, and there the vocabulary is asked: if
                    no token holds a letter or digit with such a character after it, no merge can make one.

Where that is not certain, a tokenizer has no seams, and its texts must be short.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any  # what JSON may hold

import tokenizers

from evenflow.core.errors import InvalidRequest
from evenflow.models.tokenizer_bytes import SPACE
from evenflow.models.tokenizer_gguf import PRE_TOKENIZERS

PIECE_CHARS = 1 << 16
MAX_UNCUT_CHARS = 1 << 19

# Letters and digits in every version of Unicode, whoever's tables are asked.
_LETTERS = "0-9A-Za-zÀ-ÖØ-öø-ɏΑ-ΡΣ-ώЀ-ҁא-תء-غف-يक-हก-ะぁ-ゖァ-ヺ一-龥가-힣"
_AFTER = " \n,.;:!?，。、；：！？"
_SPLITS = frozenset(kind.split for kind in PRE_TOKENIZERS.values() if kind.split is not None)

Seam = re.Pattern[str]
"""Matches the two characters around a place to cut."""


def cut(text: str, seam: Seam | None, *, piece_chars: int = PIECE_CHARS) -> Iterator[str]:
    """The pieces of `text`, in order. Raises InvalidRequest for one that would be too long."""
    start = 0
    while len(text) - start > piece_chars:
        found = seam.search(text, start + piece_chars, start + MAX_UNCUT_CHARS) if seam is not None else None
        if found is None:
            break
        yield text[start : found.start() + 1]
        start = found.start() + 1
    if len(text) - start > MAX_UNCUT_CHARS:
        where = "" if seam is None else " in a row without a word followed by a space or a mark of punctuation"
        raise InvalidRequest(
            f"the text has more than {MAX_UNCUT_CHARS} characters{where}; this model's tokenizer takes no more of them "
            "at once, so send less"
        )
    yield text[start:]


def seam_of(backend: tokenizers.Tokenizer) -> Seam | None:
    """None where no place to cut is sure to be one."""
    after = _after(backend)
    if not after:
        return None
    seam = re.compile(f"[{_LETTERS}][{re.escape(after)}]")
    for token in backend.get_added_tokens_decoder().values():
        if token.lstrip or token.rstrip or token.single_word or seam.search(token.content.replace(SPACE, " ")):
            return None
    return seam


def _after(backend: tokenizers.Tokenizer) -> str:
    """Which characters, after a letter or digit, begin a new piece."""
    model = backend.model
    normalizer, pre_tokenizer = _steps(backend.normalizer), _steps(backend.pre_tokenizer)
    if not isinstance(model, tokenizers.models.BPE) or model.dropout is not None:
        return ""
    if _is_byte_level(pre_tokenizer):
        return _AFTER if all(step == {"type": "NFC"} for step in normalizer) else ""
    affixes = model.continuing_subword_prefix or model.end_of_word_suffix
    if affixes or model.ignore_merges or normalizer not in ([], [_SPACES]) or not all(map(_is_local, pre_tokenizer)):
        return ""
    vocab = backend.get_vocab(with_added_tokens=False)
    joined = _joined(vocab)
    # A piece that begins otherwise than with a space would be given one, as the first.
    after = " " if any(step.get("prepend_scheme") == "first" for step in pre_tokenizer) else _AFTER
    return "".join(character for character in after if character not in joined) if SPACE in vocab else ""


_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}


def _steps(component: Any) -> list[Mapping[str, Any]]:
    """A component's own description as the list of its steps."""
    state = {} if component is None else json.loads(component.__getstate__())
    match state:
        case {"type": "Sequence", "pretokenizers": list(steps)} | {"type": "Sequence", "normalizers": list(steps)}:
            return steps
        case _:
            return [state] * bool(state)


def _is_byte_level(steps: list[Mapping[str, Any]]) -> bool:
    """Words of one of the known splittings, then bytes."""
    match steps:
        case [*first, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": bool(use_regex)}]:
            splits = [step for step in first if step.get("type") != "Digits"]
            return all(map(_is_known_split, splits)) and (use_regex or bool(splits))
        case _:
            return False


def _is_known_split(step: Mapping[str, Any]) -> bool:
    match step:
        case {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}:
            return regex in _SPLITS
        case _:
            return False


def _is_local(step: Mapping[str, Any]) -> bool:
    """Treats each place alike, wherever in the text it is, but for a space that it may put at the beginning."""
    match step:
        case {"type": "Metaspace", "prepend_scheme": "first" | "never"}:
            return step.get("replacement") == SPACE
        case {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}:
            return True
        case _:
            return False


def _joined(vocab: Iterable[str]) -> Set[str]:
    """The characters with which some token goes on after a letter or digit."""
    spelt = _AFTER.replace(" ", SPACE)
    found = re.findall(f"[{_LETTERS}]([{re.escape(spelt)}])", "\0".join(vocab))
    return {" " if character == SPACE else character for character in found}

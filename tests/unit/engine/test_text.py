"""Token ids to text. The `tokenizers` library, which decodes all ids at once, is the reference."""

from collections.abc import Callable, Sequence
from functools import cache, cached_property

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from evenflow.core.plan import RequestOutput, TokenLogprobs
from evenflow.core.request import FinishReason, Request, RequestId, SamplingParams
from evenflow.engine.api import Delta, TextOptions
from evenflow.engine.stream import merge
from evenflow.engine.text import Detokenizer, OutputText, TokenText

SPECIAL = "<|end|>"


class _Library:
    """A tokenizer of the `tokenizers` library, with the bytes of each token."""

    def __init__(self, tokenizer: Tokenizer, bytes_of: Callable[[str], bytes]) -> None:
        self.library = tokenizer
        self._bytes_of = bytes_of
        self.special_id = self.id_of(SPECIAL)
        self.vocab_size = tokenizer.get_vocab_size()

    def id_of(self, token: str) -> int:
        token_id = self.library.token_to_id(token)
        assert token_id is not None
        return token_id

    def encode(self, text: str) -> list[int]:
        return list(self.library.encode(text, add_special_tokens=False).ids)

    def token_bytes(self, token_id: int, /) -> bytes:
        token = self.library.id_to_token(token_id) or ""
        return SPECIAL.encode() if token_id == self.special_id else self._bytes_of(token)

    def is_special(self, token_id: int, /) -> bool:
        return bool(token_id == self.special_id)

    def decode(self, token_ids: Sequence[int], /, *, skip_special_tokens: bool = True) -> str:
        return str(self.library.decode(list(token_ids), skip_special_tokens=skip_special_tokens))


CORPUS = [
    "the quick brown fox",
    "naïve café — déjà vu",
    "日本語のテキスト",
    "🙂🙃 emoji 👩‍👩‍👧",
    "    def f(x):\n        return x",
] * 3


def _gpt2_bytes() -> dict[str, int]:
    """The printable stand-ins that byte-level BPE writes its bytes with."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


@cache
def byte_level() -> _Library:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=[SPECIAL], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    table = _gpt2_bytes()
    return _Library(tokenizer, lambda token: bytes(table[char] for char in token))


@cache
def sentence_piece() -> _Library:
    """As Llama 2's: a space is part of the word behind it, unknown characters are bytes, the first space is dropped."""
    words = ["▁", "▁the", "▁quick", "▁fox", "s", "▁déjà", "▁vu", "日", "▁" * 4, ".", "▁a", "a", "e", "t", "h"]
    vocab = [SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    tokenizer = Tokenizer(models.BPE(vocab={token: n for n, token in enumerate(vocab)}, merges=[], byte_fallback=True))
    tokenizer.add_special_tokens([SPECIAL])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )

    def bytes_of(token: str) -> bytes:
        return bytes([int(token[3:5], 16)]) if token.startswith("<0x") else token.replace("▁", " ").encode()

    return _Library(tokenizer, bytes_of)


def stream(tokenizer: TokenText, prompt: Sequence[int], ids: Sequence[int], *, skip: bool = True) -> list[str]:
    detokenizer = Detokenizer(tokenizer, prompt, skip_special_tokens=skip)
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.finish()]


# ---- characters ------------------------------------------------------------------------------------------------------


@given(ids=st.lists(st.integers(0, byte_level().vocab_size - 1), max_size=40), skip=st.booleans())
def test_byte_level_tokens_give_what_the_library_decodes_also_from_broken_bytes(ids: list[int], skip: bool) -> None:
    tokenizer = byte_level()
    whole = tokenizer.decode(ids, skip_special_tokens=skip)
    event(f"broken bytes: {'�' in whole}")
    assert "".join(stream(tokenizer, [5], ids, skip=skip)) == whole


@given(text=st.text(max_size=40))
def test_text_comes_back_and_no_character_is_shown_before_it_is_complete(text: str) -> None:
    assume("�" not in text)
    tokenizer = byte_level()
    pieces = stream(tokenizer, [5], tokenizer.encode(text))
    assert "".join(pieces) == text
    assert not any("�" in piece for piece in pieces)


@given(text=st.text(alphabet="the quick fox déjà vu 日本.", max_size=40), data=st.data())
def test_sentence_piece_output_continues_the_prompt(text: str, data: st.DataObject) -> None:
    tokenizer = sentence_piece()
    ids = tokenizer.encode(text.replace(" ", "▁"))
    cut = data.draw(st.integers(0, len(ids)))
    prompt, output = [tokenizer.special_id, *ids[:cut]], ids[cut:]
    whole, begin = tokenizer.decode(prompt + output), tokenizer.decode(prompt)
    assume("�" not in begin)  # the cut is not inside a character
    assert begin + "".join(stream(tokenizer, prompt, output)) == whole


def test_the_first_word_keeps_its_space_behind_a_prompt_and_loses_it_at_the_start_of_a_text() -> None:
    tokenizer = sentence_piece()
    ids = [tokenizer.id_of(token) for token in ("▁the", "▁fox")]
    assert stream(tokenizer, [ids[0]], ids) == [" the", " fox", ""]
    assert stream(tokenizer, [tokenizer.special_id], ids) == ["the", " fox", ""]
    assert stream(byte_level(), [byte_level().special_id], byte_level().encode(" the"))[0].startswith(" ")


def test_an_unfinished_character_becomes_a_replacement_only_where_generation_ends() -> None:
    tokenizer = sentence_piece()
    euro = [tokenizer.id_of(f"<0x{byte:02X}>") for byte in "€".encode()]
    assert stream(tokenizer, [1], euro) == ["", "", "€", ""]
    assert stream(tokenizer, [1], euro[:2]) == ["", "", "�"]
    assert stream(tokenizer, [1], [euro[0], euro[0], *euro[1:]]) == ["", "�", "", "€", ""]


def test_special_tokens_show_only_where_they_are_wanted() -> None:
    tokenizer = byte_level()
    ids = [*tokenizer.encode("a"), tokenizer.special_id, *tokenizer.encode("b")]
    assert "".join(stream(tokenizer, [5], ids)) == "ab"
    assert "".join(stream(tokenizer, [5], ids, skip=False)) == f"a{SPECIAL}b"


class CountingTokenizer:
    """Counts how many tokens it was asked about."""

    def __init__(self) -> None:
        self.asked = 0

    def token_bytes(self, token_id: int, /) -> bytes:
        self.asked += 1
        return b"\xe2"  # never completes a character

    def is_special(self, token_id: int, /) -> bool:
        return False

    def decode(self, token_ids: Sequence[int], /, *, skip_special_tokens: bool = True) -> str:
        self.asked += len(token_ids)
        return "".join("�" for _ in token_ids)


def test_each_token_is_decoded_once_however_long_the_output() -> None:
    tokenizer = CountingTokenizer()
    stream(tokenizer, [1], range(1000))
    assert tokenizer.asked <= 1001


# ---- completions -----------------------------------------------------------------------------------------------------


class LetterTokenizer:
    """Token n is the n-th of these pieces; the last is special."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    @cached_property
    def special_id(self) -> int:
        return len(self.pieces)

    def token_bytes(self, token_id: int, /) -> bytes:
        return b"<eos>" if token_id == self.special_id else self.pieces[token_id]

    def is_special(self, token_id: int, /) -> bool:
        return token_id == self.special_id

    def decode(self, token_ids: Sequence[int], /, *, skip_special_tokens: bool = True) -> str:
        return b"".join(map(self.token_bytes, token_ids)).decode(errors="replace")


def completion(
    tokenizer: TokenText,
    ids: Sequence[int],
    options: TextOptions,
    *,
    reason: FinishReason = FinishReason.LENGTH,
    stop_token_id: int | None = None,
    per_step: int = 1,
) -> list[Delta]:
    """The deltas of a completion of `ids`, `per_step` in each step."""
    request = Request(
        RequestId("r"), (0,), SamplingParams(stop_token_ids=(1,), max_tokens=len(ids) or 1), arrival_time=0.0
    )
    text = OutputText(tokenizer, request, options)
    deltas = []
    for begin in range(0, len(ids), per_step):
        step = tuple(ids[begin : begin + per_step])
        last = begin + per_step >= len(ids)
        logprobs = TokenLogprobs(step[0], -1.0, 1, ()) if per_step == 1 else None
        output = RequestOutput(
            request.id, step, reason if last else None, stop_token_id if last else None, logprobs, num_cached_tokens=3
        )
        deltas.append(text.advance(output))
        if text.finish_reason is not None:
            break
    return deltas


@st.composite
def splits(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    """A text, and its bytes in arbitrary pieces."""
    text = draw(st.text(alphabet="ab¢€🙂", max_size=20))
    data = text.encode()
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=12)))
    return text, [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(
    split=splits(),
    stop=st.lists(st.text(alphabet="ab¢€🙂", min_size=1, max_size=4), max_size=3),
    include=st.booleans(),
    per_step=st.integers(1, 4),
)
def test_deltas_joined_are_the_text_before_the_first_stop_string_for_any_split(
    split: tuple[str, list[bytes]], stop: list[str], include: bool, per_step: int
) -> None:
    text, pieces = split
    options = TextOptions(stop=tuple(stop), include_stop_str_in_output=include)
    whole = merge(completion(LetterTokenizer(*pieces), range(len(pieces)), options, per_step=per_step))
    ends = [(end, -len(s), s) for s in stop for end in range(len(text) + 1) if text[:end].endswith(s)]
    event(f"stopped: {bool(ends)}")
    if not ends:
        assert (whole.text, whole.finish_reason, whole.stop_reason) == (text, FinishReason.LENGTH, None)
        assert len(whole.token_ids) == len(pieces)
        return
    end, _, matched = min(ends)
    assert whole.text == text[: end if include else end - len(matched)]
    assert (whole.finish_reason, whole.stop_reason) == (FinishReason.STOP, matched)
    used = b"".join(pieces[: len(whole.token_ids)]).decode(errors="ignore")
    before = b"".join(pieces[: len(whole.token_ids) - 1]).decode(errors="ignore")
    assert len(before) < end <= len(used), "the tokens end with the one that completes the match"


def test_tokens_and_logprobs_come_in_their_step_though_their_text_is_held() -> None:
    deltas = completion(LetterTokenizer(b"x", b"<", b"|", b"y"), [0, 1, 2, 3], TextOptions(stop=("<|e",)))
    assert [delta.text for delta in deltas] == ["x", "", "", "<|y"]
    assert [delta.token_ids for delta in deltas] == [(0,), (1,), (2,), (3,)]
    assert [delta.logprobs[0].token_id for delta in deltas] == [0, 1, 2, 3]
    assert {delta.num_cached_tokens for delta in deltas} == {3}


def test_held_text_and_half_characters_are_released_when_generation_ends_otherwise() -> None:
    deltas = completion(LetterTokenizer(b"x<", b"|\xe2\x82"), [0, 1], TextOptions(stop=("<|e", "|�x")))
    assert [delta.text for delta in deltas] == ["x", "<|�"]


def test_a_stop_token_is_no_text_but_a_reason() -> None:
    tokenizer = LetterTokenizer(b"x", b"END")
    last = completion(tokenizer, [0, 1], TextOptions(), reason=FinishReason.STOP, stop_token_id=1)[-1]
    assert last == Delta("", (1,), FinishReason.STOP, 1, (TokenLogprobs(1, -1.0, 1, ()),), (), 3)
    shown = completion(
        tokenizer, [0, 1], TextOptions(include_stop_str_in_output=True), reason=FinishReason.STOP, stop_token_id=1
    )
    assert (shown[-1].text, shown[-1].stop_reason) == ("END", 1)


def test_an_end_of_sequence_token_is_no_text_and_no_reason_even_where_special_tokens_show() -> None:
    tokenizer = LetterTokenizer(b"x", b"y")
    eos = tokenizer.special_id
    options = TextOptions(skip_special_tokens=False)
    whole = merge(completion(tokenizer, [0, eos], options, reason=FinishReason.STOP, stop_token_id=eos))
    assert (whole.text, whole.token_ids, whole.stop_reason) == ("x", (0, eos), None)


def test_a_stop_string_completed_by_the_very_last_token_is_the_reason() -> None:
    whole = merge(completion(LetterTokenizer(b"a", b"b"), [0, 1], TextOptions(stop=("ab",))))
    assert (whole.text, whole.finish_reason, whole.stop_reason) == ("", FinishReason.STOP, "ab")


@pytest.mark.parametrize(
    ("min_tokens", "text"), [(0, ""), (2, ""), (3, "ab"), (4, "ab"), (5, "abab"), (6, "abab"), (7, "ababab")]
)
def test_stop_strings_do_not_count_before_min_tokens(min_tokens: int, text: str) -> None:
    options = TextOptions(stop=("ab",), min_tokens=min_tokens)
    assert merge(completion(LetterTokenizer(b"a", b"b"), [0, 1, 0, 1, 0, 1], options)).text == text

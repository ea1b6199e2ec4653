"""The pieces of a text have, one after the other, the tokens of the whole; what cannot be cut must be short."""

from collections import Counter
from collections.abc import Callable, Mapping

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from evenflow.core.errors import InvalidRequest
from evenflow.models.tokenizer import Tokenizer
from evenflow.models.tokenizer_bound import max_chars_per_token
from evenflow.models.tokenizer_bytes import SPACE
from evenflow.models.tokenizer_gguf import PRE_TOKENIZERS
from evenflow.models.tokenizer_seams import MAX_UNCUT_CHARS, PIECE_CHARS, Seam, cut, seam_of

CORPUS = [
    "the cat, the cat. It's the\ncat; don't  you'll see\n\n\t e.g. 1,234 x_y\n",
    "日本，日本語。\n中文 café, naïve e\u0301, 12 3",
]
END = "<|im_end|>"
# Each may meet each: what belongs together in one of the splittings, and what only seems to.
BITS = [
    "the",
    " cat",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    ",",
    ".",
    "'s",
    "'S",
    "'",
    "1",
    "23",
    "_",
    "é",
    "e\u0301",
    "\u0301",
]
BITS += [
    "the,",
    "cat ",
    "1.",
    "x:",
    "é ",
    "日，",
    "the\n",
    "cat",
    "e",
    "日",
    "，",
    "本",
    "🎉",
    "-",
    END,
    "<|im_",
    SPACE,
    "\u00a0",
    "\u2003",
    "ß",
    "x",
]
TEXTS = st.lists(st.sampled_from(BITS), min_size=4, max_size=24).map("".join)


def trained(
    *steps: pre_tokenizers.PreTokenizer, normalizer: normalizers.Normalizer | None = None
) -> tokenizers.Tokenizer:
    """Byte-level, with tokens of a whole phrase: where a text falls into words decides which of them can be made."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(CORPUS * 3, trainer)
    backend.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
    backend.decoder = decoders.ByteLevel()
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.add_special_tokens([AddedToken(END, normalized=False, special=True)])
    return backend


GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
PLAIN = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def split(name: str) -> pre_tokenizers.PreTokenizer:
    pattern = PRE_TOKENIZERS[name].split
    assert pattern is not None
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def pieces(*tokens: str, **options: object) -> tokenizers.Tokenizer:
    """SentencePiece, with `tokens` besides the letters."""
    vocab = [
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        SPACE,
        *"thecab",
        *"\n,.;:!?，。、；：！？",
        "th",
        "the",
        SPACE + "c",
        "ca",
    ]
    merges = [("t", "h"), ("th", "e"), (SPACE, "c"), ("c", "a"), *((token[:-1], token[-1]) for token in tokens)]
    ids = {token: index for index, token in enumerate([*vocab, *tokens])}
    model = models.BPE(ids, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True, **options)
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Replace(" ", SPACE)
    backend.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    return backend


def with_first_space() -> tokenizers.Tokenizer:
    backend = pieces()
    backend.normalizer = None
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="first", split=False)
    return backend


CUTTABLE: Mapping[str, Callable[[], tokenizers.Tokenizer]] = {
    "gpt-2": lambda: trained(GPT2),
    "smollm": lambda: trained(pre_tokenizers.Digits(individual_digits=True), GPT2),
    "llama-bpe": lambda: trained(split("llama-bpe"), PLAIN),
    "qwen2": lambda: trained(split("qwen2"), PLAIN, normalizer=normalizers.NFC()),
    "tekken": lambda: trained(split("tekken"), PLAIN),
    "gemma": pieces,
    "llama": with_first_space,
}


def surely(seam: Seam | None) -> Seam:
    assert seam is not None
    return seam


@pytest.mark.parametrize("kind", CUTTABLE)
def test_pieces_have_the_tokens_of_the_whole(kind: str) -> None:
    backend = CUTTABLE[kind]()
    seam = surely(seam_of(backend))
    seen: Counter[str] = Counter()

    @settings(max_examples=200)
    @given(text=TEXTS)
    def one(text: str) -> None:
        parts = list(cut(text, seam, piece_chars=1))
        assert "".join(parts) == text
        seen["cuts"] += len(parts) - 1
        whole = backend.encode(text, add_special_tokens=False).ids
        assert [i for part in parts for i in backend.encode(part, add_special_tokens=False).ids] == whole

    one()
    assert seen["cuts"] > 60


def test_a_cut_elsewhere_would_change_the_tokens() -> None:
    backend = CUTTABLE["gpt-2"]()
    for left, right in (("the  ", "cat"), ("<|im", "_end|>"), ("ca", "t")):
        assert backend.encode(left).ids + backend.encode(right).ids != backend.encode(left + right).ids


UNCUTTABLE: Mapping[str, Callable[[], tokenizers.Tokenizer]] = {
    "an unknown splitting": lambda: trained(pre_tokenizers.Split(Regex(r"\w+\s*|\W"), behavior="isolated"), PLAIN),
    "no splitting": lambda: trained(PLAIN),
    "a space before every text": lambda: trained(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "a normalizer that drops": lambda: trained(GPT2, normalizer=normalizers.StripAccents()),
    "no words, and tokens across each seam": lambda: pieces(
        *(f"e{after}" for after in SPACE + "\n,.;:!?，。、；：！？")
    ),
    "chance": lambda: pieces(dropout=0.1),
}


@pytest.mark.parametrize("kind", UNCUTTABLE)
def test_what_is_not_sure_to_be_a_seam_is_none(kind: str) -> None:
    assert seam_of(UNCUTTABLE[kind]()) is None


@pytest.mark.parametrize(
    "token", [AddedToken("a b"), AddedToken("<x>", lstrip=True), AddedToken("<x>", single_word=True)]
)
def test_added_tokens_that_look_across_a_seam_leave_none(token: AddedToken) -> None:
    backend = CUTTABLE["gpt-2"]()
    backend.add_tokens([token])
    assert seam_of(backend) is None


def test_without_words_only_what_no_token_spans_is_a_seam() -> None:
    seam = surely(seam_of(pieces("e,")))
    assert list(cut("the,the the.", seam, piece_chars=1)) == ["the,the", " the", "."]


def tokenizer(backend: tokenizers.Tokenizer) -> Tokenizer:
    return Tokenizer(backend, bos_token_id=None, eos_token_ids=(), chat_template=None)


def test_a_long_text_has_its_surroundings_once() -> None:
    backend = CUTTABLE["gpt-2"]()
    end = backend.token_to_id(END)
    assert end is not None
    backend.post_processor = processors.TemplateProcessing(single=f"{END} $A {END} {END}", special_tokens=[(END, end)])
    ours = tokenizer(backend)
    text = "the cat, " * (PIECE_CHARS // 3)
    ids = ours.encode(text)
    assert ids == backend.encode(text).ids
    assert (ids[:2].count(end), ids[-3:].count(end)) == (1, 2)
    assert end not in ours.encode(text, add_special_tokens=False)


def test_a_long_text_that_cannot_be_cut_is_refused() -> None:
    ours = tokenizer(CUTTABLE["gpt-2"]())
    assert len(ours.encode("-" * (PIECE_CHARS + 1))) > 0
    with pytest.raises(InvalidRequest, match=f"more than {MAX_UNCUT_CHARS} characters in a row without a word"):
        ours.encode("the cat " * PIECE_CHARS + "-" * (MAX_UNCUT_CHARS + 1))
    with pytest.raises(InvalidRequest, match=f"more than {MAX_UNCUT_CHARS} characters; this model's"):
        tokenizer(UNCUTTABLE["no splitting"]()).encode("the cat " * (MAX_UNCUT_CHARS // 8 + 1))


@pytest.mark.parametrize(
    ("normalizer", "bound"),
    [
        (None, 5),
        (normalizers.NFC(), 20),
        (normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("a", "bb")]), 20),
        (normalizers.Replace("ab", "c"), None),
        (normalizers.Strip(), None),
        (normalizers.Sequence([normalizers.NFC(), normalizers.Strip()]), None),
    ],
)
def test_how_many_characters_one_token_can_stand_for(normalizer: normalizers.Normalizer, bound: int | None) -> None:
    assert max_chars_per_token(trained(GPT2, normalizer=normalizer), 5) == bound


def test_composing_makes_one_character_of_at_most_four() -> None:
    assert normalizers.NFC().normalize_str("\u03b1\u0313\u0300\u0345") == "\u1f82"

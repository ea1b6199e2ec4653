"""A tokenizer is the same whether it comes from tokenizer.json or is put together from GGUF metadata."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

from evenflow.core.errors import InvalidRequest, ModelError
from evenflow.models.tokenizer import Tokenizer, load_tokenizer
from evenflow.models.tokenizer_gguf import PRE_TOKENIZERS, merges_of

CORPUS = [
    "the cat sat on the mat, the cat ate  the   rat; it's 1234 or 56 — naïve café 日本 日本語",
    "def f(x):\n    return x + 1\n\n\tthe end. THE END! don't you'll we've",
]
TEXTS = [
    "the cat sat",
    "  the   cat  12345 is   9",
    "it's DON'T you'll\r\n\n  \n",
    "naïve 日本語 🎉 e\u0301",
    "<|im_start|>user\nhi<|im_end|>",
    "def f(x):\n\treturn  x+1",
    "",
    " ",
]
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def byte_level(
    steps: Sequence[pre_tokenizers.PreTokenizer],
    normalizer: normalizers.Normalizer | None = None,
    *,
    ignore_merges: bool = False,
) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE(ignore_merges=ignore_merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
    backend.decoder = decoders.ByteLevel()
    if normalizer is not None:
        backend.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    return backend


def with_gpt2_pattern(*steps: pre_tokenizers.PreTokenizer) -> tokenizers.Tokenizer:
    return byte_level([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])


def with_pattern(name: str, normalizer: normalizers.Normalizer | None = None) -> tokenizers.Tokenizer:
    row = PRE_TOKENIZERS[name]
    assert row.split is not None
    split = pre_tokenizers.Split(Regex(row.split), behavior="isolated")
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return byte_level([split, plain], normalizer, ignore_merges=row.ignore_merges)


ORIGINALS = {
    "gpt-2": lambda: with_gpt2_pattern(),
    "smollm": lambda: with_gpt2_pattern(pre_tokenizers.Digits(individual_digits=True)),
    "llama-bpe": lambda: with_pattern("llama-bpe"),
    "qwen2": lambda: with_pattern("qwen2", normalizers.NFC()),
    "tekken": lambda: with_pattern("tekken"),
}


def write_vocabulary(path: Path, values: Mapping[str, object], *, architecture: str = "llama") -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in values.items():
        match value:
            case bool():
                writer.add_bool(f"tokenizer.{key}", value)
            case int():
                writer.add_uint32(f"tokenizer.{key}", value)
            case str():
                writer.add_string(f"tokenizer.{key}", value)
            case list():
                writer.add_array(f"tokenizer.{key}", value)
            case _:
                raise AssertionError(key)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def as_gguf(backend: tokenizers.Tokenizer, pre: str) -> dict[str, object]:
    vocab = backend.get_vocab(with_added_tokens=True)
    tokens = sorted(vocab, key=vocab.__getitem__)
    return {
        "ggml.model": "gpt2",
        "ggml.pre": pre,
        "ggml.tokens": tokens,
        "ggml.token_type": [3 if token in SPECIAL else 1 for token in tokens],
        "ggml.merges": [" ".join(merge) for merge in json.loads(backend.to_str())["model"]["merges"]],
        "ggml.bos_token_id": vocab["<|im_start|>"],
        "ggml.eos_token_id": vocab["<|im_end|>"],
    }


@pytest.mark.parametrize("pre", ORIGINALS)
def test_a_gguf_vocabulary_encodes_like_the_tokenizer_it_was_made_from(pre: str, tmp_path: Path) -> None:
    original = ORIGINALS[pre]()
    built = load_tokenizer(write_vocabulary(tmp_path / "m.gguf", as_gguf(original, pre)))
    for text in (*TEXTS, *CORPUS):
        expected = original.encode(text)
        assert built.encode(text) == expected.ids, text
        assert built.decode(expected.ids, skip_special_tokens=False) == original.decode(
            expected.ids, skip_special_tokens=False
        )


def test_digits_are_single_tokens_only_where_the_model_was_trained_so(tmp_path: Path) -> None:
    original = ORIGINALS["gpt-2"]()
    vocabulary = as_gguf(original, "gpt-2")
    assert isinstance(vocabulary["ggml.tokens"], list)
    vocabulary["ggml.tokens"] = [*vocabulary["ggml.tokens"], "99"]
    vocabulary["ggml.merges"] = ["9 9"]
    joined = load_tokenizer(write_vocabulary(tmp_path / "a.gguf", vocabulary))
    single = load_tokenizer(write_vocabulary(tmp_path / "b.gguf", vocabulary | {"ggml.pre": "smollm"}))
    assert [joined.token_text(i) for i in joined.encode("99")] == ["99"]
    assert [single.token_text(i) for i in single.encode("99")] == ["9", "9"]


PIECES = ["\u2581", *"thecab", "th", "the", "\u2581t", "\u2581the", "he", "\u2581c", "ca", "ab", "\n"]
SENTENCEPIECE: dict[str, object] = {
    "ggml.model": "llama",
    "ggml.tokens": ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES, "<tool>"],
    "ggml.scores": [0.0] * 3 + [0.0] * 256 + [-float(i) for i, _ in enumerate(PIECES)] + [0.0],
    "ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(PIECES) + [4],
    "ggml.bos_token_id": 1,
    "ggml.eos_token_id": 2,
    "ggml.unknown_token_id": 0,
}


@pytest.mark.parametrize("text", ["the cab", " the  the", "abc\nthe", "é🎉", "<tool>the<tool> c", "a<s>b", "", "  "])
def test_a_sentencepiece_vocabulary_encodes_like_transformers_encodes_it(text: str, tmp_path: Path) -> None:
    keys = {"ggml.model": "tokenizer_type", "ggml.token_type": "token_type"}
    reference, _ = convert_gguf_tokenizer(
        "llama", {keys.get(key, key.removeprefix("ggml.")): value for key, value in SENTENCEPIECE.items()}
    )
    ours = load_tokenizer(write_vocabulary(tmp_path / "m.gguf", SENTENCEPIECE))
    expected = reference.encode(text, add_special_tokens=False).ids
    assert ours.encode(text, add_special_tokens=False) == expected
    assert ours.encode(text) == [1, *expected]
    assert ours.decode(expected) == reference.decode(expected)


def test_sentencepiece_puts_no_space_in_front_where_the_file_says_so(tmp_path: Path) -> None:
    ours = load_tokenizer(write_vocabulary(tmp_path / "m.gguf", SENTENCEPIECE | {"ggml.add_space_prefix": False}))
    ids = ours.encode("the the")
    assert [ours.token_text(i) for i in ids] == ["<s>", "the", "\u2581the"]
    assert ours.decode(ids) == "the the"


def test_merges_are_recovered_best_token_first_and_longer_left_part_first() -> None:
    assert merges_of(["a", "b", "ab", "aba", "ba"], [0.0, 0.0, 1.0, 3.0, 2.0]) == [
        ("a", "b"),
        ("b", "a"),
        ("ab", "a"),
        ("a", "ba"),
    ]


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Tokenizer]:
    folder = tmp_path_factory.mktemp("vocabularies")
    bytes_file = write_vocabulary(folder / "bytes.gguf", as_gguf(ORIGINALS["smollm"](), "smollm"))
    pieces_file = write_vocabulary(folder / "pieces.gguf", SENTENCEPIECE | {"ggml.add_space_prefix": False})
    return {"bytes": load_tokenizer(bytes_file), "pieces": load_tokenizer(pieces_file)}


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
@given(text=st.text(max_size=30))
def test_the_bytes_of_the_tokens_are_the_bytes_of_the_text(
    kind: str, spoken: Mapping[str, Tokenizer], text: str
) -> None:
    text = text.replace("\u2581", " ")  # SentencePiece cannot tell it from a space
    ids = spoken[kind].encode(text, add_special_tokens=False)
    assert b"".join(map(spoken[kind].token_bytes, ids)) == text.encode()
    assert spoken[kind].decode(ids, skip_special_tokens=False) == text


def test_special_tokens_are_known_and_left_out_of_text_on_demand(spoken: Mapping[str, Tokenizer]) -> None:
    tokenizer = spoken["bytes"]
    ids = tokenizer.encode("<|im_start|>the<|im_end|>")
    assert [tokenizer.is_special(token_id) for token_id in ids] == [True, False, True]
    assert tokenizer.token_bytes(ids[0]) == b"<|im_start|>"
    assert tokenizer.decode(ids) == "the"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>the<|im_end|>"


def test_every_token_that_ends_a_turn_is_an_end_token(spoken: Mapping[str, Tokenizer]) -> None:
    tokenizer = spoken["bytes"]
    assert [tokenizer.token_text(i) for i in tokenizer.eos_token_ids] == ["<|im_end|>", "<|endoftext|>"]
    assert tokenizer.bos_token_id == tokenizer.encode("<|im_start|>")[0]


def test_ids_without_a_token_stand_for_nothing(spoken: Mapping[str, Tokenizer]) -> None:
    tokenizer = spoken["bytes"]
    beyond = tokenizer.vocab_size + 5
    assert (tokenizer.token_text(beyond), tokenizer.token_bytes(beyond)) == ("", b"")
    assert tokenizer.decode([beyond, *tokenizer.encode("the")]) == "the"


def test_half_a_surrogate_pair_is_an_invalid_request(spoken: Mapping[str, Tokenizer]) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        spoken["bytes"].encode("a\ud83d")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ggml.model": "t5"}, "tokenizer 't5' is not supported. Supported: gpt2, llama"),
        ({"ggml.pre": "mystery"}, "pre-tokenizer 'mystery' is not supported"),
        ({"ggml.tokens": ["x" * 5000]}, "'tokenizer.ggml.tokens' holds a token of 5000 characters"),
        ({"ggml.tokens": "x"}, "'tokenizer.ggml.tokens' must be a list"),
        ({"ggml.merges": ["ab"]}, "'tokenizer.ggml.merges' holds 'ab', which is not two tokens"),
        ({"ggml.merges": ["nowhere tobefound"]}, "'tokenizer.ggml.merges' makes 'nowheretobefound', which is not a"),
        ({"ggml.merges": [" the"]}, "the vocabulary and its merges do not fit together"),
        ({"ggml.tokens": [*"abc"], "ggml.token_type": [1] * 3, "ggml.merges": ["a b"]}, "makes 'ab', which is not"),
        ({"ggml.bos_token_id": 100_000}, "'tokenizer.ggml.bos_token_id' is 100000, but there are"),
        ({"ggml.model": "llama"}, "'tokenizer.ggml.scores' must be"),
        ({"chat_template": "{% for %}"}, "the chat template is not valid Jinja"),
    ],
)
def test_a_gguf_vocabulary_that_cannot_be_used_is_refused_by_file_and_key(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    values = as_gguf(ORIGINALS["gpt-2"](), "gpt-2") | change
    with pytest.raises(ModelError, match=r"m\.gguf") as caught:
        load_tokenizer(write_vocabulary(tmp_path / "m.gguf", values))
    assert message in str(caught.value)


def test_a_gguf_file_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"m\.gguf: 'tokenizer\.ggml\.tokens' is missing"):
        load_tokenizer(write_vocabulary(tmp_path / "m.gguf", {"ggml.model": "gpt2"}))


def write_folder(folder: Path, **files: object) -> Path:
    backend = ORIGINALS["smollm"]()
    backend.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    backend.enable_truncation(4)  # what training left behind must not cut prompts
    backend.save(str(folder / "tokenizer.json"))
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def test_a_folder_gives_bos_ends_and_template_from_all_its_files(tmp_path: Path) -> None:
    folder = write_folder(
        tmp_path,
        config={"eos_token_id": 7},
        generation_config={"eos_token_id": [5, 7]},
        tokenizer_config={
            "bos_token": "<|endoftext|>",
            "eos_token": {"content": "<|im_end|>", "special": True},
            "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
        },
    )
    tokenizer = load_tokenizer(folder)
    assert tokenizer.bos_token_id == 0
    assert tokenizer.eos_token_ids == (5, 7, 2)
    assert tokenizer.encode("the cat sat on the mat")[0] == 0
    assert tokenizer.decode(tokenizer.encode("the cat sat on the mat")) == "the cat sat on the mat"
    assert tokenizer.encode("the", add_special_tokens=False)[0] != 0
    assert tokenizer.chat_template is not None
    chat = tokenizer.chat_template.render([{"role": "user", "content": "x"}], add_generation_prompt=True)
    assert chat == "<|endoftext|>x<|im_end|>"


def test_a_template_file_of_its_own_wins_and_named_templates_give_the_default(tmp_path: Path) -> None:
    named = [{"name": "tools", "template": "tools"}, {"name": "default", "template": "named"}]
    folder = write_folder(tmp_path, tokenizer_config={"chat_template": named})
    first = load_tokenizer(folder).chat_template
    (folder / "chat_template.jinja").write_text("file")
    second = load_tokenizer(folder).chat_template
    assert first is not None
    assert second is not None
    assert [template.render([], add_generation_prompt=False) for template in (first, second)] == ["named", "file"]


def test_a_folder_without_further_files_still_tokenises(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_folder(tmp_path))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids, tokenizer.chat_template) == (None, (), None)


def test_a_missing_or_broken_tokenizer_json_is_a_model_error_naming_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json: no such file\. Save it"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"tokenizer\.model alone is not read"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(ModelError, match=r"tokenizer\.json: not a tokenizer that can be read"):
        load_tokenizer(tmp_path)

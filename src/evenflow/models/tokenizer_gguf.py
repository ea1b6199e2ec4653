"""A tokenizer from GGUF metadata: the vocabulary is in the file, the way text is cut up before it is known by a name.

`tokenizer.ggml.model` is the kind of vocabulary:

    gpt2    byte-level BPE with merges; `tokenizer.ggml.pre` names the splitting, which is the table `PRE_TOKENIZERS`
    llama   SentencePiece; merges are recovered from the vocabulary: of all ways to make a token out of two others, the
            best token first, where best is the highest score (for Gemma, whose scores say nothing, the lowest id)

An unknown name is an error, not a guess: a wrong split gives worse text without any sign of it.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from evenflow.models.fields import Fields
from evenflow.models.gguf_file import GGUFFile
from evenflow.models.tokenizer_bytes import SPACE

MAX_TOKEN_CHARACTERS = 1 << 12

_CONTROL, _USER_DEFINED = 3, 4

# Tokens that end a turn in the models that have them, whatever the file names as its end of sequence.
_END_OF_TURN = frozenset(
    {"<|eot_id|>", "<|im_end|>", "<|end|>", "<|eom_id|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>"}
)

_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN_SPLIT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """`split` None is GPT-2's own pattern. `ignore_merges`: a word that is a token stays whole, whatever the merges."""

    split: str | None = None
    single_digits: bool = False
    composes_unicode: bool = False
    ignore_merges: bool = False


_GPT2 = PreTokenizer()
_SMOLLM = PreTokenizer(single_digits=True)
_LLAMA3 = PreTokenizer(_LLAMA3_SPLIT, ignore_merges=True)
_QWEN2 = PreTokenizer(_QWEN2_SPLIT, composes_unicode=True)
_TEKKEN = PreTokenizer(_TEKKEN_SPLIT, ignore_merges=True)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    **dict.fromkeys(("default", "gpt-2", "gpt2"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), _SMOLLM),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN2),
    "tekken": _TEKKEN,
}


class Vocabulary:
    """The tokens of a .gguf file and what each is for."""

    __slots__ = ("metadata", "tokens", "types")

    def __init__(self, file: GGUFFile) -> None:
        self.metadata: Fields = file.metadata
        self.tokens = file.metadata.texts("tokenizer.ggml.tokens") or []
        self.types = file.metadata.integers("tokenizer.ggml.token_type")
        if not self.tokens:
            raise file.metadata.error("'tokenizer.ggml.tokens' is missing.")
        longest = max(map(len, self.tokens))
        if longest > MAX_TOKEN_CHARACTERS:  # recovering merges takes quadratic time in it
            raise file.metadata.error(f"'tokenizer.ggml.tokens' holds a token of {longest} characters.")

    def token_id(self, key: str) -> int | None:
        """Of bos, eos, unknown, ...; None if the file names none."""
        key = f"tokenizer.ggml.{key}_token_id"
        token_id = self.metadata.optional_integer(key)
        if token_id is not None and not 0 <= token_id < len(self.tokens):
            raise self.metadata.error(f"'{key}' is {token_id}, but there are {len(self.tokens)} tokens.")
        return token_id

    def special_tokens(self) -> Mapping[str, str]:
        """What chat templates call bos_token, eos_token, ..."""
        names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
        ids = {name: self.token_id(key) for name, key in names.items()}
        return {name: self.tokens[token_id] for name, token_id in ids.items() if token_id is not None}

    def end_token_ids(self) -> list[int]:
        named = [self.token_id(key) for key in ("eos", "eot", "eom")]
        known = [i for i, token in enumerate(self.tokens) if token in _END_OF_TURN and self._is(i, _CONTROL)]
        return [token_id for token_id in named if token_id is not None] + known

    def of_type(self, kind: int) -> list[str]:
        return [token for i, token in enumerate(self.tokens) if self._is(i, kind)]

    def _is(self, token_id: int, kind: int) -> bool:
        return token_id < len(self.types) and self.types[token_id] == kind


def build_backend(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    kind = vocabulary.metadata.text("tokenizer.ggml.model")
    match kind:
        case "gpt2":
            backend = _byte_level(vocabulary)
        case "llama":
            backend = _sentencepiece(vocabulary)
        case _:
            raise vocabulary.metadata.error(f"tokenizer '{kind}' is not supported. Supported: gpt2, llama.")
    # Control tokens are special; user-defined ones are plain text that is never split.
    backend.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in vocabulary.of_type(_CONTROL)]
    )
    user_defined = [token for token in vocabulary.of_type(_USER_DEFINED) if backend.token_to_id(token) is not None]
    backend.add_tokens([AddedToken(token, normalized=False, special=False) for token in user_defined])
    _surround(vocabulary, backend, default_bos=kind == "llama")
    return backend


def _byte_level(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    metadata = vocabulary.metadata
    name = metadata.optional_text("tokenizer.ggml.pre") or "default"
    pre = PRE_TOKENIZERS.get(name)
    if pre is None:
        raise metadata.error(
            f"pre-tokenizer '{name}' is not supported. Supported: {', '.join(PRE_TOKENIZERS)}. "
            "Use the model's Hugging Face folder with tokenizer.json instead."
        )
    known = frozenset(vocabulary.tokens)
    merges = [_merge(metadata, merge, known) for merge in metadata.texts("tokenizer.ggml.merges") or ()]
    backend = _bpe(metadata, vocabulary.tokens, merges, ignore_merges=pre.ignore_merges)
    steps: list[pre_tokenizers.PreTokenizer] = []
    if pre.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if pre.split is not None:
        steps.append(pre_tokenizers.Split(Regex(pre.split), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre.split is None))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    if pre.composes_unicode:
        backend.normalizer = normalizers.NFC()
    return backend


def _merge(metadata: Fields, text: str, known: Set[str]) -> tuple[str, str]:
    left, space, right = text.partition(" ")
    if not space:
        raise metadata.error(f"'tokenizer.ggml.merges' holds '{text[:60]}', which is not two tokens.")
    if left + right not in known:  # the library may panic, which is no Exception
        raise metadata.error(f"'tokenizer.ggml.merges' makes '{(left + right)[:60]}', which is not a token.")
    return left, right


def _sentencepiece(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    metadata, tokens = vocabulary.metadata, vocabulary.tokens
    gemma = metadata.text("general.architecture").startswith("gemma")
    if gemma:
        # Runs of spaces are in the file as spaces, while text reaches the merges with U+2581 for each.
        tokens = [SPACE * len(token) if token and not token.strip(" ") else token for token in tokens]
        ranks: Sequence[float] = range(len(tokens))
    else:
        scores = metadata.optional_list("tokenizer.ggml.scores") or ()
        if len(scores) != len(tokens) or not all(isinstance(score, float) for score in scores):
            raise metadata.error(f"'tokenizer.ggml.scores' must be {len(tokens)} numbers, one for each token.")
        ranks = [-score for score in scores if isinstance(score, float)]
    unknown = vocabulary.token_id("unknown")
    backend = _bpe(
        metadata,
        tokens,
        merges_of(tokens, ranks),
        unk_token=None if unknown is None else tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    steps: list[decoders.Decoder] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if gemma or not metadata.flag("tokenizer.ggml.add_space_prefix", True):
        backend.normalizer = normalizers.Replace(" ", SPACE)
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="first", split=False)
        steps.append(decoders.Strip(content=" ", left=1))
    if gemma:
        backend.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    backend.decoder = decoders.Sequence(steps)
    return backend


def merges_of(tokens: Sequence[str], ranks: Sequence[float]) -> list[tuple[str, str]]:
    """Every way to make one token out of two, the token of lowest rank first, then the longer left part."""
    known = frozenset(tokens)
    found = [
        (rank, -cut, token)
        for token, rank in zip(tokens, ranks, strict=True)
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    ]
    found.sort()
    return [(token[:-cut], token[-cut:]) for _, cut, token in found]


def _bpe(
    metadata: Fields, tokens: Sequence[str], merges: Sequence[tuple[str, str]], **options: Any
) -> tokenizers.Tokenizer:
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    try:
        return tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=list(merges), **options))
    except Exception as error:  # the library raises plain Exception, such as for a merge of unknown tokens
        raise metadata.error(f"the vocabulary and its merges do not fit together: {error}.") from error


def _surround(vocabulary: Vocabulary, backend: tokenizers.Tokenizer, *, default_bos: bool) -> None:
    """What `encode` puts around a text."""
    parts, used = ["$A"], []
    for key, place, default in (("bos", 0, default_bos), ("eos", len(parts) + 1, False)):
        token_id = vocabulary.token_id(key)
        if token_id is not None and vocabulary.metadata.flag(f"tokenizer.ggml.add_{key}_token", default):
            parts.insert(place, key)
            used.append({"id": key, "ids": [token_id], "tokens": [vocabulary.tokens[token_id]]})
    if used:
        backend.post_processor = processors.TemplateProcessing(single=" ".join(parts), special_tokens=used)

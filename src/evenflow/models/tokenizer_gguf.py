"""A tokenizer from GGUF metadata: the vocabulary is in the file, the way text is cut up before it is known by a name.

`tokenizer.ggml.model` is the kind of vocabulary:

    gpt2    byte-level BPE with merges; `tokenizer.ggml.pre` names the splitting, which is the table `PRE_TOKENIZERS`
    llama   SentencePiece; merges are recovered from the vocabulary: of all ways to make a token out of two others, the
            best token first, where best is the highest score (for Gemma, whose scores say nothing, the lowest id)

An unknown name is an error, not a guess: a wrong split gives worse text without any sign of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from evenflow.models.gguf_file import GGUFFile
from evenflow.models.tokenizer_bytes import SPACE

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
    """`split` None is GPT-2's own pattern. `ignore_merges`: a word that is a token is that token, whatever the merges."""

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


def build_backend(file: GGUFFile) -> tokenizers.Tokenizer:
    kind = file.metadata.text("tokenizer.ggml.model")
    match kind:
        case "gpt2":
            backend = _byte_level(file)
        case "llama":
            backend = _sentencepiece(file)
        case _:
            raise file.metadata.error(f"tokenizer '{kind}' is not supported. Supported: gpt2, llama.")
    _add_tokens(file, backend)
    _add_template(file, backend, default_bos=kind == "llama")
    return backend


def special_tokens(file: GGUFFile) -> Mapping[str, str]:
    """What chat templates call bos_token, eos_token, ..."""
    tokens, specials = _tokens(file), {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token_id = _token_id(file, tokens, key)
        if token_id is not None:
            specials[f"{name}_token"] = tokens[token_id]
    return specials


def end_token_ids(file: GGUFFile) -> list[int]:
    tokens, types = _tokens(file), file.metadata.integers("tokenizer.ggml.token_type")
    named = [_token_id(file, tokens, key) for key in ("eos", "eot", "eom")]
    known = [i for i, (token, kind) in enumerate(zip(tokens, types, strict=False)) if _ends_turn(token, kind)]
    return [token_id for token_id in named if token_id is not None] + known


def _ends_turn(token: str, kind: int) -> bool:
    return kind == _CONTROL and token in _END_OF_TURN


def _tokens(file: GGUFFile) -> list[str]:
    tokens = file.metadata.texts("tokenizer.ggml.tokens")
    if not tokens:
        raise file.metadata.error("'tokenizer.ggml.tokens' is missing.")
    return tokens


def _token_id(file: GGUFFile, tokens: Sequence[str], key: str) -> int | None:
    token_id = file.metadata.optional_integer(f"tokenizer.ggml.{key}_token_id")
    if token_id is not None and not 0 <= token_id < len(tokens):
        raise file.metadata.error(f"'tokenizer.ggml.{key}_token_id' is {token_id}, but there are {len(tokens)} tokens.")
    return token_id


def _byte_level(file: GGUFFile) -> tokenizers.Tokenizer:
    name = file.metadata.optional_text("tokenizer.ggml.pre") or "default"
    pre = PRE_TOKENIZERS.get(name)
    if pre is None:
        raise file.metadata.error(
            f"pre-tokenizer '{name}' is not supported. Supported: {', '.join(PRE_TOKENIZERS)}. "
            "Use the model's Hugging Face folder with tokenizer.json instead."
        )
    merges = [tuple(merge.split(" ", 1)) for merge in file.metadata.texts("tokenizer.ggml.merges") or ()]
    vocab = {token: token_id for token_id, token in enumerate(_tokens(file))}
    backend = _bpe(file, vocab, merges, ignore_merges=pre.ignore_merges)
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


def _sentencepiece(file: GGUFFile) -> tokenizers.Tokenizer:
    tokens = _tokens(file)
    gemma = file.metadata.text("general.architecture").startswith("gemma")
    if gemma:
        # Runs of spaces are in the file as spaces, while text reaches the merges with U+2581 for each.
        tokens = [SPACE * len(token) if token and not token.strip(" ") else token for token in tokens]
        ranks: Sequence[float] = range(len(tokens))
    else:
        scores = file.metadata.optional_list("tokenizer.ggml.scores") or ()
        if len(scores) != len(tokens) or not all(isinstance(score, float) for score in scores):
            raise file.metadata.error(f"'tokenizer.ggml.scores' must be {len(tokens)} numbers, one for each token.")
        ranks = [-score for score in scores if isinstance(score, float)]
    unknown = _token_id(file, tokens, "unknown")
    backend = _bpe(
        file,
        {token: token_id for token_id, token in enumerate(tokens)},
        merges_of(tokens, ranks),
        unk_token=None if unknown is None else tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    steps: list[decoders.Decoder] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if gemma or not file.metadata.flag("tokenizer.ggml.add_space_prefix", True):
        backend.normalizer = normalizers.Replace(" ", SPACE)
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="first", split=False)
        steps.append(decoders.Strip(content=" ", left=1))
    backend.decoder = decoders.Sequence(steps)
    return backend


def merges_of(tokens: Sequence[str], ranks: Sequence[float]) -> list[tuple[str, str]]:
    """Every way to make one token out of two, the token of lowest rank first, then the shorter left part."""
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    found: list[tuple[float, int, int, str, str]] = []
    for token, rank in zip(tokens, ranks, strict=True):
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                found.append((rank, cut, len(right), left, right))
    found.sort(key=lambda merge: merge[:3])
    return [(left, right) for *_, left, right in found]


def _bpe(
    file: GGUFFile, vocab: Mapping[str, int], merges: Sequence[tuple[str, ...]], **options: object
) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer(models.BPE(vocab=dict(vocab), merges=list(merges), **options))
    except Exception as error:  # the library raises plain Exception, such as for a merge of unknown tokens
        raise file.metadata.error(f"the vocabulary and its merges do not fit together: {error}.") from error


def _add_tokens(file: GGUFFile, backend: tokenizers.Tokenizer) -> None:
    """Control tokens are special; user-defined ones are plain text that is never split."""
    tokens, types = _tokens(file), file.metadata.integers("tokenizer.ggml.token_type")
    control, user_defined = [], []
    for token, kind in zip(tokens, types, strict=False):
        if kind == _CONTROL:
            control.append(AddedToken(token, normalized=False, special=True))
        elif kind == _USER_DEFINED and backend.token_to_id(token) is not None:
            user_defined.append(AddedToken(token, normalized=False, special=False))
    backend.add_special_tokens(control)
    backend.add_tokens(user_defined)


def _add_template(file: GGUFFile, backend: tokenizers.Tokenizer, *, default_bos: bool) -> None:
    """What `encode` puts around a text."""
    tokens, parts, used = _tokens(file), ["$A"], []
    for key, first, default in (("bos", True, default_bos), ("eos", False, False)):
        token_id = _token_id(file, tokens, key)
        if token_id is None or not file.metadata.flag(f"tokenizer.ggml.add_{key}_token", default):
            continue
        parts.insert(0 if first else len(parts), key)
        used.append({"id": key, "ids": [token_id], "tokens": [tokens[token_id]]})
    if used:
        backend.post_processor = processors.TemplateProcessing(single=" ".join(parts), special_tokens=used)

"""Text to token ids and back, over the `tokenizers` library; from a model folder or from a .gguf file.

`eos_token_ids` gathers every token at which the model ends its turn: the model's, generation_config.json's and the
tokenizer's end of sequence, and a .gguf file's end-of-turn tokens. `encode` follows the model in whether it begins with
a bos token; a rendered chat template has its own, so encode that with `add_special_tokens=False`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import tokenizers

from evenflow.core.errors import InvalidRequest, ModelError
from evenflow.files.bounded_file import read_at_most
from evenflow.models.chat_template import ChatTemplate
from evenflow.models.fields import Fields, read_json_object
from evenflow.models.gguf_file import GGUFFile
from evenflow.models.source import is_gguf
from evenflow.models.tokenizer_bound import max_chars_per_token
from evenflow.models.tokenizer_bytes import byte_level_bytes, sentencepiece_bytes
from evenflow.models.tokenizer_gguf import Vocabulary, build_backend
from evenflow.models.tokenizer_seams import PIECE_CHARS, cut, seam_of

MAX_TOKENIZER_BYTES = 256 << 20
MAX_CONFIG_BYTES = 16 << 20


class Tokenizer:
    """Immutable and safe to use from several threads."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bos_token_id: int | None,
        eos_token_ids: Sequence[int],
        chat_template: ChatTemplate | None,
    ) -> None:
        self._backend = backend
        self.vocab_size = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self.bos_token_id = bos_token_id
        self.eos_token_ids = tuple(dict.fromkeys(eos_token_ids))
        self.chat_template = chat_template
        self._added = {token_id: token.content for token_id, token in backend.get_added_tokens_decoder().items()}
        self._special = frozenset(i for i, token in backend.get_added_tokens_decoder().items() if token.special)
        self._bytes_of: Callable[[str], bytes] = _bytes_of(backend)
        self._token_bytes: dict[int, bytes] = {}
        self._seam = seam_of(backend)
        self._before, self._after = _surroundings(backend)
        # One object per id, which a list of millions of ids can share.
        self._ids = tuple(range(self.vocab_size))

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Raises InvalidRequest for what is no text, and for megabytes that cannot be cut into pieces."""
        if len(text) <= PIECE_CHARS:
            return self._encode(text, add_special_tokens)
        ids = list(self._before) if add_special_tokens else []
        for piece in cut(text, self._seam):
            ids.extend(map(self._ids.__getitem__, self._encode(piece, add_special_tokens=False)))
        ids.extend(self._after if add_special_tokens else ())
        return ids

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        try:
            # The batch call releases the interpreter lock while it works and does not track character offsets.
            [encoding] = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        except (UnicodeEncodeError, TypeError) as error:
            raise InvalidRequest("the text is not valid Unicode: it holds half of a surrogate pair.") from error
        return list(encoding.ids)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Bytes that are not UTF-8 become U+FFFD. Ids that no token has are left out."""
        # The batch call releases the interpreter lock; a million ids take more than half a second.
        [text] = self._backend.decode_batch([list(ids)], skip_special_tokens=skip_special_tokens)
        return text

    def token_text(self, token_id: int) -> str:
        """The token as the vocabulary spells it; "" for an id that no token has."""
        return self._backend.id_to_token(token_id) or ""

    def token_bytes(self, token_id: int) -> bytes:
        """What the token stands for; special tokens stand for their text, ids without a token for nothing."""
        data = self._token_bytes.get(token_id)
        if data is None:
            data = self._spell(token_id)
            if 0 <= token_id < self.vocab_size:
                self._token_bytes[token_id] = data  # asked for every token of every stream
        return data

    def _spell(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode("utf-8", "surrogatepass")
        return self._bytes_of(self.token_text(token_id))

    def max_chars_per_token(self) -> int | None:
        """The most characters of input that one token can stand for; None if there is no such bound."""
        longest = max(len(self._spell(token_id)) for token_id in range(self.vocab_size))
        return max_chars_per_token(self._backend, longest)

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special


def load_tokenizer(path: str | Path) -> Tokenizer:
    path = Path(path)
    return _from_gguf(GGUFFile(path)) if is_gguf(path) else _from_folder(path)


def _surroundings(backend: tokenizers.Tokenizer) -> tuple[list[int], list[int]]:
    """What `encode` puts before and after a text, whatever the text."""
    [encoding] = backend.encode_batch_fast(["a"], add_special_tokens=True)
    added = [bool(mask) for mask in encoding.special_tokens_mask]
    first = added.index(False) if False in added else len(added)
    last = len(added) - (added[::-1].index(False) if False in added else 0)
    return encoding.ids[:first], encoding.ids[last:]


def _bytes_of(backend: tokenizers.Tokenizer) -> Callable[[str], bytes]:
    """By the decoder, which is the one part that must know the alphabet."""
    state = b"" if backend.decoder is None else backend.decoder.__getstate__()
    return byte_level_bytes if b'"ByteLevel"' in state else sentencepiece_bytes


def _from_gguf(file: GGUFFile) -> Tokenizer:
    vocabulary = Vocabulary(file)
    text = file.metadata.optional_text("tokenizer.chat_template")
    specials = vocabulary.special_tokens()
    return Tokenizer(
        build_backend(vocabulary),
        bos_token_id=vocabulary.token_id("bos"),
        eos_token_ids=vocabulary.end_token_ids(),
        chat_template=None if text is None else ChatTemplate(text, specials, source=str(file.path)),
    )


def _from_folder(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        hint = " (tokenizer.model alone is not read)" if (folder / "tokenizer.model").is_file() else ""
        raise ModelError(f"{path}: no such file{hint}. Save it with transformers, or use a .gguf file of the model.")
    try:
        content = read_at_most(path, MAX_TOKENIZER_BYTES)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}.") from error
    if content is None:
        raise ModelError(f"{path}: larger than the {MAX_TOKENIZER_BYTES} bytes expected of a tokenizer.")
    try:
        backend = tokenizers.Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises plain Exception
        raise ModelError(f"{path}: not a tokenizer that can be read: {error}.") from error
    backend.no_padding()
    backend.no_truncation()
    config = _optional_json(folder / "tokenizer_config.json")
    specials = _config_special_tokens(config)
    template = _template_text(folder, config)
    bos = specials.get("bos_token")
    return Tokenizer(
        backend,
        bos_token_id=None if bos is None else backend.token_to_id(bos),
        eos_token_ids=_folder_end_tokens(folder, backend, specials),
        chat_template=None if template is None else ChatTemplate(template, specials, source=str(folder)),
    )


def _optional_json(path: Path) -> Fields:
    return read_json_object(path, max_bytes=MAX_CONFIG_BYTES) if path.is_file() else Fields(str(path), {})


def _config_special_tokens(config: Fields) -> Mapping[str, str]:
    """bos_token, eos_token, ...: written as text, or as an object with the text as its content."""
    specials = {}
    for key in ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"):
        value = config.raw(key)
        content = value.get("content") if isinstance(value, dict) else value
        if isinstance(content, str):
            specials[key] = content
    return specials


def _folder_end_tokens(folder: Path, backend: tokenizers.Tokenizer, specials: Mapping[str, str]) -> list[int]:
    ends: list[int] = []
    for name in ("generation_config.json", "config.json"):
        ends.extend(_optional_json(folder / name).integers("eos_token_id"))
    if "eos_token" in specials:
        token_id = backend.token_to_id(specials["eos_token"])
        ends.extend(() if token_id is None else (token_id,))
    return ends


def _template_text(folder: Path, config: Fields) -> str | None:
    """chat_template.jinja, or `chat_template` of tokenizer_config.json: a text, or a list of named ones."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            content = read_at_most(path, MAX_CONFIG_BYTES)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror or error}.") from error
        if content is None:
            raise ModelError(f"{path}: larger than the {MAX_CONFIG_BYTES} bytes expected of a chat template.")
        return content.decode("utf-8", errors="replace")
    value = config.raw("chat_template")
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None

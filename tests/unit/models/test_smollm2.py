"""The real SmolLM2-135M from its Q4_1 .gguf file: tokens and logits as transformers has them from the same file."""

import copy
import itertools
import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from evenflow.models.llama import LlamaModel
from evenflow.models.loading import load_model
from evenflow.models.source import resolve_model
from evenflow.models.tokenizer import Tokenizer, load_tokenizer
from tiny_models import TOLERANCE, logits, transformers_logits

pytestmark = [pytest.mark.model, pytest.mark.slow]

TEXTS = [
    "Hello, world!",
    "  two  spaces   three    four",
    "tabs\tand\nnew\n\n\nlines\r\n",
    "naïve café — “quotes” … e\u0301",
    "日本語のテキスト 한국어 עברית العربية",
    "🎉🔥👩‍👩‍👧‍👦",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
    "x=1;y=22;z=333.5e-7",
    "don't I'll you're it's WE'VE",
    "\x00\x01\x7f",
    " ",
    "",
]
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    if n",
    "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
    "1 2 3 4 5 6 7 8 9",
    "Once upon a time, in a village by the sea, there lived an old fisherman who " * 8,
]


@pytest.fixture(scope="module")
def path() -> Path:
    return resolve_model("smollm2-135m")


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> Tokenizer:
    return load_tokenizer(path)


@pytest.fixture(scope="module")
def model(path: Path) -> LlamaModel:
    return load_model(path, "fp32")


def _random_texts() -> list[str]:
    """No whitespace before a digit: there transformers does not split as the file says."""
    rng = random.Random(0)
    pieces = [*"abcXYZ.,!?'\"<>|_-éß日🎉\u200d{}()5\n\t ", " the", " and", "ing", "  ", "'s", "//"]
    texts = ["".join(rng.choices(pieces, k=rng.randint(1, 40))) for _ in range(400)]
    return [text for text in texts if not any(a.isspace() and b.isdigit() for a, b in itertools.pairwise(text))]


def test_text_becomes_the_tokens_that_transformers_makes_of_it(path: Path, tokenizer: Tokenizer) -> None:
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    texts = [*TEXTS, *PROMPTS, *_random_texts()]
    assert len(texts) > 200
    for text in texts:
        ids = theirs(text)["input_ids"]
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
        assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()


def test_digits_are_single_tokens_and_leave_the_spaces_before_them_together(tokenizer: Tokenizer) -> None:
    tokens = [tokenizer.token_text(token_id) for token_id in tokenizer.encode("a   123")]
    assert tokens == ["a", "ĠĠĠ", "1", "2", "3"]


def test_the_chat_template_and_the_end_of_a_turn_come_from_the_file(tokenizer: Tokenizer) -> None:
    assert tokenizer.chat_template is not None
    chat = tokenizer.chat_template.render([{"role": "user", "content": "Hi"}], add_generation_prompt=True)
    assert chat.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert [tokenizer.token_text(token_id) for token_id in tokenizer.eos_token_ids] == ["<|im_end|>", "<|endoftext|>"]
    assert tokenizer.vocab_size == 49152


@pytest.fixture(scope="module")
def theirs(path: Path) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    assert isinstance(model, PreTrainedModel)
    return model


def test_fp32_logits_are_those_of_transformers(
    tokenizer: Tokenizer, model: LlamaModel, theirs: PreTrainedModel
) -> None:
    for text in PROMPTS:
        ids = tokenizer.encode(text)
        expected = transformers_logits(theirs, ids)
        torch.testing.assert_close(logits(model, ids), expected, atol=TOLERANCE, rtol=0.0)


def test_bf16_is_no_further_from_fp32_than_transformers_is(
    path: Path, tokenizer: Tokenizer, model: LlamaModel, theirs: PreTrainedModel
) -> None:
    ours, coarse = load_model(path, "bf16"), copy.deepcopy(theirs).bfloat16()
    for text in PROMPTS[:3]:
        ids = tokenizer.encode(text)
        exact = logits(model, ids)
        error = (logits(ours, ids) - exact).abs().mean()
        assert 0.0 < error < 1.2 * (transformers_logits(coarse, ids) - exact).abs().mean()

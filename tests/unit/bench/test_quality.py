"""The measure of quality against its formula, on a tiny model without cache, batch or scheduler."""

import math
from pathlib import Path

import pytest
import torch

from evenflow.bench.quality import FORMATS, WINDOW, in_format, measure, text, windows
from evenflow.engine.config import EngineConfig
from evenflow.models.loading import load_model
from tiny_models import VOCAB_SIZE, logits, tiny_model


def test_windows_are_whole_and_cover_what_was_asked_for() -> None:
    tokens = list(range(100))
    assert windows(tokens, num_tokens=20, window=10) == [tuple(range(10)), tuple(range(10, 20))]
    assert len(windows(tokens, num_tokens=21, window=10)) == 3
    assert len(windows(tokens, num_tokens=1000, window=30)) == 3
    assert windows(tokens, num_tokens=1000, window=101) == []


def test_the_text_is_long_enough_and_english() -> None:
    assert len(text()) > 4 * (20_000 // WINDOW * WINDOW)
    assert text().startswith("CHAPTER I")
    assert text().count(" the ") > 500


@pytest.mark.parametrize("budget", [7, 512])
def test_perplexity_is_that_of_the_model(budget: int, tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    model = load_model(tmp_path, "fp32")
    generator = torch.Generator().manual_seed(1)
    prompts = [tuple(torch.randint(VOCAB_SIZE, (count,), generator=generator).tolist()) for count in (40, 40, 23)]
    total = sum(
        float(torch.log_softmax(logits(model, list(prompt)), dim=1)[range(len(prompt) - 1), prompt[1:]].sum())
        for prompt in prompts
    )
    config = in_format(EngineConfig(model=str(tmp_path), threads=1, max_num_batched_tokens=budget), "fp32")
    measured = measure(config, prompts)
    assert measured.tokens == 39 + 39 + 22
    assert measured.perplexity == pytest.approx(math.exp(-total / measured.tokens), rel=1e-4)
    assert measured.settings["dtype"].startswith("fp32")


def test_a_coarser_format_is_another_model(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    config = EngineConfig(model=str(tmp_path), threads=1)
    seen = {name: measure(in_format(config, name), [tuple(range(60))]).perplexity for name in FORMATS}
    assert len(set(seen.values())) == len(FORMATS)

"""The scheduler's limits: each wrong one is refused by its name."""

import pytest

from evenflow.core.config import SchedulerConfig
from evenflow.core.errors import ConfigError


def test_the_smallest_settings_are_accepted() -> None:
    config = SchedulerConfig(max_num_seqs=1, max_model_len=2, vocab_size=1)
    assert config.watermark_blocks == 0


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("max_num_seqs", (0, 2, 1, 0)),
        ("max_model_len", (1, 1, 1, 0)),
        ("vocab_size", (1, 2, 0, 0)),
        ("watermark_blocks", (1, 2, 1, -1)),
        ("max_num_batched_tokens", (1, 2, 1, 0, 0)),
    ],
)
def test_a_setting_that_cannot_work_is_named(name: str, settings: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=name):
        SchedulerConfig(*settings)

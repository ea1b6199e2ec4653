"""The scheduler's own settings: limits, not choices (choices are the pieces of `policy.py`)."""

from dataclasses import dataclass

from evenflow.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """At most `max_num_seqs` requests run at once and `max_num_batched_tokens` are fed in a step, whatever the policy;
    prompt plus output of each is at most `max_model_len` tokens.

    `watermark_blocks` stay free at admission (an idle engine ignores it), so that running requests can grow a little
    before anyone is preempted. Token ids must be below `vocab_size`.
    """

    max_num_seqs: int
    max_model_len: int
    vocab_size: int
    watermark_blocks: int = 0
    max_num_batched_tokens: int = 65536

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1:
            raise ConfigError(f"max_num_seqs must be at least 1, not {self.max_num_seqs}")
        if self.max_num_batched_tokens < 1:
            raise ConfigError(f"max_num_batched_tokens must be at least 1, not {self.max_num_batched_tokens}")
        if self.max_model_len < 2:
            raise ConfigError(
                f"max_model_len must be at least 2 (one prompt token, one output), not {self.max_model_len}"
            )
        if self.vocab_size < 1:
            raise ConfigError(f"vocab_size must be at least 1, not {self.vocab_size}")
        if self.watermark_blocks < 0:
            raise ConfigError(f"watermark_blocks must not be negative, not {self.watermark_blocks}")

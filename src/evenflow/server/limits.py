"""How much one client may ask for at once. Every bound on untrusted input that the front has is here."""

from dataclasses import dataclass

from evenflow.core.errors import ConfigError
from evenflow.core.request import MAX_TOP_LOGPROBS

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds on what a client may send; beyond them a request is refused with 4xx.

    `max_body_bytes_in_flight` bounds the memory of all bodies together, from their first byte until their prompt is
    tokenised; small ones always fit. A body that is not complete after `max_body_seconds` is given up, so that nobody
    can hold that memory for ever. `max_sequences` bounds prompts times `n` of one request, `max_logprob_entries` the
    log-probabilities that its answer may have to hold.
    """

    max_body_bytes: int = 32 * MIB
    max_body_bytes_in_flight: int = 256 * MIB
    max_body_seconds: float = 120.0
    max_prompts: int = 256
    max_n: int = 128
    max_sequences: int = 512
    max_logprobs: int = MAX_TOP_LOGPROBS
    max_logprob_entries: int = 4 * MIB
    max_stop_strings: int = 16
    max_stop_chars: int = 1024
    max_stop_token_ids: int = 256
    max_logit_bias: int = 1024
    max_messages: int = 4096
    max_template_kwargs: int = 32
    max_cache_salt_chars: int = 256
    max_tokenize_chars: int = 4 * MIB
    max_detokenize_tokens: int = 256 * 1024

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            least = 0 if name in ("max_logprobs", "max_body_seconds") else 1
            if not value >= least:
                raise ConfigError(f"{name} must be at least {least}, not {value}")
        if self.max_logprobs > MAX_TOP_LOGPROBS:
            raise ConfigError(f"max_logprobs must be at most {MAX_TOP_LOGPROBS}, not {self.max_logprobs}")

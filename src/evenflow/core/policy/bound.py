"""What a policy promises: a number, its unit, and the sentence that a person reads.

A bound is computed by the piece that keeps it, from the limits it works within. It is a promise about the event log,
and the tests hold every run against it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """`value` None: there is no such bound under this choice, and the sentence says why."""

    name: str
    value: float | None
    unit: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine was built for, after the policy's own caps: the numbers that bounds are computed from."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_blocks: int
    block_size: int

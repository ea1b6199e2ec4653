"""What a model says of the next token: a row of logits per request, in the type in which its head multiplies.

Whoever reads logits takes float32 or bfloat16 as it comes; nobody copies all of them into another type. A head of our
own kernels also leaves the largest logit of each block of 256 tokens, which it has at hand while it multiplies: with
these a greedy request needs to look into one block only.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Logits:
    """`values` is [n, vocab], contiguous rows; `maxima` float32 [n, blocks of 256], without NaN, or None: not known."""

    values: Tensor
    maxima: Tensor | None = None

    @classmethod
    def of(cls, logits: "Tensor | Logits") -> "Logits":
        return logits if isinstance(logits, Logits) else cls(logits)

    def __len__(self) -> int:
        return len(self.values)

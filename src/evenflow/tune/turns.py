"""In which order configurations take their turns, so that slow minutes do not fall on the same ones.

    round 1   C A D B     drawn (seeded)
    round 2   B D A C     the same backwards: who came early comes late
    round 3   A B C D     drawn anew

Drawn, so that nothing that goes on in the machine can keep step with it; backwards, so that a machine that grows slower
(or faster) at an even pace costs each of them the same over two rounds.
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


def turns(what: Sequence[T], round_number: int, seed: int) -> list[T]:
    """Of this round; rounds are counted from 0. The same whichever rounds were asked for before."""
    order = list(what)
    Random(seed * 1_000_003 + round_number // 2).shuffle(order)
    return order[::-1] if round_number % 2 else order

"""What a step costs: seconds from the few numbers that a step's work comes to.

    P new prefill tokens, D decodes, N = P + D, A and K the positions that prefill and decode tokens attend to,
    R requests scheduled, B = (R - D) A / P the positions whose keys and values the chunks of prompts read

    seconds = t0 + (w^p + (g N)^p)^(1/p) + r R + m(log2 N) + a A + k K + b B

A step reads all weights once (w) however few tokens it has, and computes with them for every token (g N): it takes the
longer of the two, with a knee as sharp as p says. Attention adds what it reads (k K, and b B for chunks, whose tokens
share what is read) and what chunks compute (a A), a request its own handling (r R), and m is what is left: a line
through knots over the logarithm of N, for kernels that like some sizes better than others. No coefficient but those of
m may be negative, so more work never costs less.

Around that, real steps scatter (levels.py). A simulation without it would have tails that are too clean. Between two
steps the loop itself takes `gap_seconds`.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf, log2
from typing import NamedTuple

from evenflow.core.events import StepRecord
from evenflow.core.plan import StepPlan

LEAST_SECONDS = 1e-6
"""No step takes less, whatever a model says of work that it has never seen."""


class Regime(Enum):
    """Kinds of step that scatter differently."""

    __hash__ = object.__hash__  # an Enum's own hashes its name, in Python: 0.2 us of each step

    DECODE = "decode"
    MIXED = "mixed"
    PREFILL = "prefill"


class StepFeatures(NamedTuple):
    """The work of a step. Contexts are positions attended to, summed over fed tokens, each itself included."""

    prefill_tokens: int
    decode_tokens: int
    prefill_context: int
    decode_context: int
    num_scheduled: int

    @property
    def num_tokens(self) -> int:
        return self.prefill_tokens + self.decode_tokens

    @property
    def prefill_reads(self) -> float:
        """Positions that the chunks of prompts read, each once: exact where chunks are alike, or there is one."""
        if not self.prefill_tokens:
            return 0.0
        return (self.num_scheduled - self.decode_tokens) * self.prefill_context / self.prefill_tokens

    @property
    def regime(self) -> Regime:
        if not self.prefill_tokens:
            return Regime.DECODE
        return Regime.MIXED if self.decode_tokens else Regime.PREFILL

    @classmethod
    def of(cls, step: StepPlan | StepRecord) -> "StepFeatures":
        if isinstance(step, StepPlan):
            prefill_tokens, decode_tokens, num_scheduled = (
                step.num_prefill_tokens,
                step.num_decode_tokens,
                len(step.chunks),
            )
        else:
            prefill_tokens, decode_tokens, num_scheduled = step.prefill_tokens, step.decode_tokens, step.num_scheduled
        decode_context = step.decode_context_tokens
        prefill_context = step.attended_context_tokens - decode_context
        return cls(prefill_tokens, decode_tokens, prefill_context, decode_context, num_scheduled)


class Knot(NamedTuple):
    log2_tokens: float
    seconds: float


class Bounds(NamedTuple):
    """What a feature was between in the steps that a cost was fitted to."""

    feature: str
    low: float
    high: float


class Spread(NamedTuple):
    """`sigma` is of the logarithm of measured over predicted seconds; `factors` are what these were at the levels of
    levels.py, of mean 1, and none where a log-normal scatter has to do."""

    regime: Regime
    sigma: float
    num_steps: int
    factors: tuple[float, ...] = ()


class Drift(NamedTuple):
    """Steps that follow each other are slow or fast together: so large a share of the scatter's variance is, and
    fades by a factor e within so many steps."""

    share: float
    num_steps: float


class Kind(Enum):
    """Where a cost comes from, and so what it may be used for."""

    MEASURED = "measured by this engine"
    PUBLISHED = "fitted to published timings"
    ROOFLINE = "computed from a device's data sheet"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a cost is the cost of. `engine` is evenflow's version; `settings` are those that change a step's time."""

    kind: Kind
    machine: str
    model: str
    engine: str
    description: str = ""
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Quality:
    """How far predictions are from steps that the fit has not seen; shares, and None where nothing was held out.

    `held_out` says what those steps are. `bias` is that of the total time, positive where predictions are too long.
    """

    held_out: str
    num_steps: int
    mape: float | None = None
    p95: float | None = None
    bias: float | None = None


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds per token, position and request. `kv_tokens` is what the measured engine's KV cache held, if known, and
    `swap_block_seconds` what copying one block of `block_size` tokens to or from host memory took, if it was seen."""

    identity: Identity
    fixed_seconds: float = 0.0
    weight_seconds: float = 0.0
    token_seconds: float = 0.0
    sharpness: float = 4.0
    request_seconds: float = 0.0
    prefill_context_seconds: float = 0.0
    decode_context_seconds: float = 0.0
    prefill_read_seconds: float = 0.0
    knots: tuple[Knot, ...] = ()
    gap_seconds: float = 0.0
    spreads: tuple[Spread, ...] = ()
    drift: Drift | None = None
    hull: tuple[Bounds, ...] = ()
    qualities: tuple[Quality, ...] = ()
    kv_tokens: int | None = None
    swap_block_seconds: float | None = None
    block_size: int | None = None
    notes: tuple[str, ...] = ()
    _knot_places: tuple[float, ...] = field(init=False, repr=False, compare=False, default=())
    _of_tokens: dict[int, tuple[float, float]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_knot_places", tuple(knot.log2_tokens for knot in self.knots))

    def seconds(self, features: StepFeatures) -> float:
        """The expected duration."""
        base = self.without_decode_context(features)
        return max(base + self.decode_context_seconds * features.decode_context, LEAST_SECONDS)

    def without_decode_context(self, features: StepFeatures) -> float:
        """All but the last term: what stays the same while the same streams decode."""
        prefill_tokens, decode_tokens, prefill_context, _, num_scheduled = features
        num_tokens = prefill_tokens + decode_tokens
        known = self._of_tokens.get(num_tokens)
        if known is None:  # powers and a logarithm: 2 us, of the 60 that a simulated step takes
            p = self.sharpness
            knee: float = (self.weight_seconds**p + (self.token_seconds * num_tokens) ** p) ** (1.0 / p)
            known = self._of_tokens[num_tokens] = self.fixed_seconds + knee, self.correction(num_tokens)
        base = known[0] + self.request_seconds * num_scheduled + known[1]
        if not prefill_tokens:
            return base
        reads = (num_scheduled - decode_tokens) * prefill_context / prefill_tokens
        return base + self.prefill_context_seconds * prefill_context + self.prefill_read_seconds * reads

    def decode_seconds(self, features: StepFeatures) -> Iterator[float]:
        """Of steps in which the same streams decode, from `features` on; bit for bit as `seconds` has them."""
        base, per_position = self.without_decode_context(features), self.decode_context_seconds
        context, num_decodes = features.decode_context, features.decode_tokens
        while True:
            yield max(base + per_position * context, LEAST_SECONDS)
            context += num_decodes

    def slowed(self, factor: float) -> "StepCost":
        """Every step takes so many times as long; scatter, as a share, gaps and swaps stay."""
        return replace(
            self,
            fixed_seconds=self.fixed_seconds * factor,
            weight_seconds=self.weight_seconds * factor,
            token_seconds=self.token_seconds * factor,
            request_seconds=self.request_seconds * factor,
            prefill_context_seconds=self.prefill_context_seconds * factor,
            decode_context_seconds=self.decode_context_seconds * factor,
            prefill_read_seconds=self.prefill_read_seconds * factor,
            knots=tuple(knot._replace(seconds=knot.seconds * factor) for knot in self.knots),
        )

    def correction(self, num_tokens: int) -> float:
        """m(log2 N): between knots a line, beyond the last ones what those say."""
        places = self._knot_places
        if not places or num_tokens < 1:
            return 0.0
        at = log2(num_tokens)
        index = bisect_right(places, at)
        if index in (0, len(places)):
            return self.knots[index and -1].seconds
        (x0, y0), (x1, y1) = self.knots[index - 1], self.knots[index]
        return y0 + (y1 - y0) * (at - x0) / (x1 - x0)

    def spread(self, regime: Regime) -> Spread:
        return next((spread for spread in self.spreads if spread.regime is regime), Spread(regime, 0.0, 0))

    def sigma(self, regime: Regime) -> float:
        return self.spread(regime).sigma

    def outside_hull(self, features: StepFeatures) -> tuple[str, ...]:
        """The features that are beyond what the fit has seen: there the prediction is a guess."""
        return tuple(name for name, low, high in self.hull if not low <= getattr(features, name) <= high)


HULL_FEATURES = (
    "num_tokens",
    "prefill_tokens",
    "decode_tokens",
    "prefill_context",
    "decode_context",
    "num_scheduled",
)


def hull_of(features: Sequence[StepFeatures]) -> tuple[Bounds, ...]:
    return tuple(
        Bounds(
            name,
            min((getattr(each, name) for each in features), default=inf),
            max((getattr(each, name) for each in features), default=-inf),
        )
        for name in HULL_FEATURES
    )

"""What a step costs, learned from the engine's own steps.

    seconds = c0 + c1 * decode tokens + c2 * decode context + c3 * prefill tokens + c4 * prefill context

Contexts are summed over the fed tokens: the positions that each attends to, itself included. The last few hundred steps
are kept, those that only decode apart from the others, so that an hour of decoding does not make the model forget what
a prefill costs. The sums of their least squares are kept up to date and solved again every few steps; no cost may be
negative: a feature whose best coefficient would be is left out.

Robust: a step that took far longer than predicted (a page fault) counts as one that took half as long again. Quick:
what hundreds of steps have taught is scaled by the pace of the last few, of steps with prefills and of those without,
because a neighbour on the machine makes everything slower within a step and is gone again before a window has turned
over. Careful: what must fit into a time is given a margin that all but a twentieth of such steps have kept, and a step
never has more than twice the prefill tokens of the largest one seen, because a line through small steps says little
about large ones.
"""

from collections import deque
from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple


class StepWork(NamedTuple):
    """The features of a step."""

    decode_tokens: int
    decode_context: int
    prefill_tokens: int
    prefill_context: int


# About the size that each feature has in a busy step, so that the equations are well conditioned.
_SCALES = (1.0, 64.0, 32768.0, 256.0, 65536.0)
_ALL = range(len(_SCALES))
_WINDOW = 256
_REFIT_EVERY = 8
_LATE = 0.05  # share of steps that may take longer than their margin allows
_MARGIN_STEP = 0.3
_ERROR_MEMORY = 0.95
_MOST_LATE = 1.5  # by prediction, of what one step can teach
_PACE_MEMORY = 0.85
_UNSEEN_PREFILL_TOKENS = 64  # a step may have these before the model knows any prefill
_RIDGE = 1e-6

_Row = tuple[float, ...]


class StepTimeModel:
    __slots__ = (
        "_coefficients",
        "_knows_largest",
        "_largest_prefill",
        "_margin",
        "_new",
        "_num_unfitted",
        "_pace",
        "_products",
        "_usual_error",
        "_windows",
    )

    def __init__(self) -> None:
        self._new: deque[tuple[StepWork, float]] = deque(maxlen=2 * _WINDOW)
        self._windows: tuple[deque[tuple[_Row, float]], ...] = (deque(), deque())  # decodes only, and others
        self._products = [[0.0] * (len(_SCALES) + 1) for _ in _ALL]  # the last column is of the seconds
        self._coefficients: Sequence[float] = ()
        self._usual_error = 0.0  # of steps with prefills, by their prediction
        self._margin = 2.0  # in usual errors
        self._pace = [1.0, 1.0]  # seconds by predicted seconds, for the same two kinds of steps
        self._num_unfitted = 0
        self._largest_prefill = 0.0
        self._knows_largest = True

    def observe(self, work: StepWork, seconds: float) -> None:
        """A step of this work took so long. Costs next to nothing until somebody asks."""
        self._new.append((work, seconds))

    @property
    def is_fitted(self) -> bool:
        self._learn()
        return bool(self._coefficients)

    def seconds(self, work: StepWork) -> float:
        """The predicted duration of a step; 0 before anything is known."""
        self._learn()
        return self._pace[work.prefill_tokens > 0] * self._predict(_row(work))

    def prefill_seconds(self, tokens: int, context: int) -> float:
        """What so much prefill adds to the steps that it is fed in; 0 before anything is known."""
        self._learn()
        _, *row = _row(StepWork(0, 0, tokens, context))
        return self._pace[True] * sum([c * x for c, x in zip(self._coefficients[1:], row, strict=False)])

    def prefill_tokens_within(
        self, seconds: float, decode_tokens: int, decode_context: int, prefill_start: int, *, least_seconds: float = 0.0
    ) -> int:
        """How many tokens of a prompt, from position `prefill_start` on, fit into such a step beside these decodes, or
        into `least_seconds` where the decodes leave less."""
        self._learn()
        cap = int(2 * self._largest_prefill * _SCALES[3]) or _UNSEEN_PREFILL_TOKENS
        if not self._coefficients:
            return _UNSEEN_PREFILL_TOKENS
        pace = self._pace[True]
        spent = pace * self._predict(_row(StepWork(decode_tokens, decode_context, 0, 0)))
        left = max(seconds / (1 + self._margin * self._usual_error) - spent, least_seconds) / pace
        if left <= 0.0:
            return 0
        # n tokens from s on attend to n * s + n * (n + 1) / 2 positions: a quadratic in n.
        per_token, per_position = self._coefficients[3] / _SCALES[3], self._coefficients[4] / _SCALES[4]
        linear, square = per_token + per_position * (prefill_start + 0.5), per_position / 2
        if square * cap * cap + linear * cap <= left:
            return cap
        # left is below the value at cap, so linear and square are not both 0; this form needs no division by square.
        return int(2 * left / (linear + sqrt(linear * linear + 4 * square * left)))

    def _predict(self, row: _Row) -> float:
        return sum([c * x for c, x in zip(self._coefficients, row, strict=False)])

    def _learn(self) -> None:
        while self._new:
            work, seconds = self._new.popleft()
            row = _row(work)
            kind = work.prefill_tokens > 0
            if self._coefficients:
                seconds = self._tamed(row, seconds, kind)
            window = self._windows[kind]
            window.append((row, seconds))
            self._count(row, seconds, 1.0)
            if len(window) > _WINDOW:
                self._count(*window.popleft(), -1.0)
            self._knows_largest &= not work.prefill_tokens
            self._num_unfitted += 1
            if self._num_unfitted >= _REFIT_EVERY:
                self._fit()

    def _tamed(self, row: _Row, seconds: float, kind: bool) -> float:
        fitted, pace = self._predict(row), self._pace[kind]
        if fitted <= 0.0:
            return seconds
        ratio = seconds / (pace * fitted)
        if kind:  # the margin is a quantile, tracked: it rises seldom and much, and sinks often and little
            late = ratio > 1 + self._margin * self._usual_error
            self._margin = max(0.0, self._margin + _MARGIN_STEP * (late - _LATE))
            error = min(abs(ratio - 1), _MOST_LATE - 1)
            self._usual_error = _ERROR_MEMORY * self._usual_error + (1 - _ERROR_MEMORY) * error
        self._pace[kind] = pace * (_PACE_MEMORY + (1 - _PACE_MEMORY) * min(max(ratio, 1 / _MOST_LATE), _MOST_LATE))
        return min(seconds, _MOST_LATE * fitted)

    def _count(self, row: _Row, seconds: float, sign: float) -> None:
        present = [(j, x) for j, x in enumerate(row) if x]
        for i, x in present:
            products = self._products[i]
            x *= sign
            for j, y in present:
                products[j] += x * y
            products[-1] += x * seconds

    def _fit(self) -> None:
        self._num_unfitted = 0
        if not self._knows_largest:
            self._largest_prefill = max(row[3] for row, _ in self._windows[1])
            self._knows_largest = True
        self._coefficients = _least_squares(self._products)


def _row(work: StepWork) -> _Row:
    decode_tokens, decode_context, prefill_tokens, prefill_context = work
    return (
        1.0,
        decode_tokens / _SCALES[1],
        decode_context / _SCALES[2],
        prefill_tokens / _SCALES[3],
        prefill_context / _SCALES[4],
    )


def _least_squares(products: Sequence[Sequence[float]]) -> list[float]:
    """The coefficients of least error of which none is negative, found by leaving out the most negative in turn.

    Durations are not negative, so neither is the coefficient of the last feature that is left.
    """
    kept = list(_ALL)
    while True:
        found = _solve([[*(products[i][j] + _RIDGE * (i == j) for j in kept), products[i][-1]] for i in kept])
        if min(found) >= 0.0:
            coefficients = [0.0] * len(_SCALES)
            for index, value in zip(kept, found, strict=True):
                coefficients[index] = value
            return coefficients
        del kept[found.index(min(found))]


def _solve(rows: list[list[float]]) -> list[float]:
    """Gauss-Jordan on a symmetric positive definite system; each row ends with its right-hand side."""
    for i, pivot_row in enumerate(rows):
        pivot = pivot_row[i]
        pivot_row[:] = [value / pivot for value in pivot_row]
        for k, row in enumerate(rows):
            if k != i and row[i]:
                factor = row[i]
                row[:] = [value - factor * by for value, by in zip(row, pivot_row, strict=True)]
    return [row[-1] for row in rows]

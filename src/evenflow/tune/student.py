"""Student's t for small samples: how many standard errors an interval is wide, with so many degrees of freedom.

For whole degrees n its distribution is a finite sum in the angle a = atan(t / sqrt(n)) (Abramowitz and Stegun 1964,
26.7.3 and 26.7.4), so no table and no approximation is needed where it matters most, at one to five degrees.
"""

from math import atan, cos, pi, sin, sqrt, tan

_HALVINGS = 100


def within(t: float, degrees: int) -> float:
    """The chance of |T| <= t."""
    return _within_angle(atan(t / sqrt(degrees)), degrees)


def student_t(level: float, degrees: int) -> float:
    """The t that |T| stays below with the chance `level`: 12.7 at 95 % and one degree, 1.96 with very many."""
    assert 0.0 <= level < 1.0 and degrees >= 1
    low, high = 0.0, pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _within_angle(middle, degrees) < level:
            low = middle
        else:
            high = middle
    return sqrt(degrees) * tan(low)


def _within_angle(angle: float, degrees: int) -> float:
    cosine, odd = cos(angle), degrees % 2
    term = cosine if odd else 1.0
    total = 0.0
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    if not odd:
        return sin(angle) * total
    return (angle + sin(angle) * total) * 2 / pi

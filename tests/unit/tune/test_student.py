"""Student's t against the printed tables."""

import pytest

from evenflow.tune.student import student_t, within


@pytest.mark.parametrize(
    ("level", "degrees", "table"),
    [
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 3, 3.182),
        (0.95, 5, 2.571),
        (0.95, 22, 2.074),
        (0.99, 1, 63.657),
        (0.99, 4, 4.604),
        (0.90, 10, 1.812),
        (0.95, 1000, 1.962),
    ],
)
def test_as_in_the_tables(level: float, degrees: int, table: float) -> None:
    assert student_t(level, degrees) == pytest.approx(table, abs=6e-4)
    assert within(table, degrees) == pytest.approx(level, abs=1e-4)


def test_the_chance_of_nothing() -> None:
    assert student_t(0.0, 3) == pytest.approx(0.0, abs=1e-9)
    assert within(0.0, 4) == 0.0

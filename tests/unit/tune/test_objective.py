"""What is asked for: limits on statistics, and what should be best."""

import pytest

from evenflow.core.errors import ConfigError
from evenflow.tune.objective import Limit, Statistic, check_classes, parse_goal, parse_limits, parse_objective


def test_limits_are_on_statistics_of_all_or_of_a_class() -> None:
    assert parse_limits("ttft_p95=1s, interactive:itl_p99.9=150ms,e2e_mean=2m") == (
        Limit(Statistic("ttft", 95.0), 1.0),
        Limit(Statistic("itl", 99.9, "interactive"), 0.15),
        Limit(Statistic("e2e", None), 120.0),
    )
    assert str(parse_limits("interactive:itl_p99.9=150ms")[0]) == "interactive:itl_p99.9=0.15s"


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        ("ttft=1s", "statistic like ttft_p95"),
        ("speed_p95=1s", "one of ttft, itl"),
        ("ttft_p95", "like ttft_p95=1s"),
        ("ttft_p95=soon", "must be a time"),
        ("ttft_p95=0", "above 0"),
        ("ttft_p0=1s", "between 0 and 100"),
        ("ttft_p95=1s,ttft_p95=2s", "twice"),
    ],
)
def test_a_limit_that_says_nothing_is_refused(text: str, saying: str) -> None:
    with pytest.raises(ConfigError, match=saying):
        parse_limits(text)


def test_an_objective_is_a_rate_or_a_statistic() -> None:
    assert parse_objective("throughput").more_is_better
    assert not parse_objective("batch:e2e_p50").more_is_better
    goodput = parse_objective("goodput:ttft=1s,itl=150ms")
    assert goodput.bounds is not None
    assert len(goodput.bounds.bounds) == 2
    assert str(parse_goal("throughput", None)) == "best throughput with no limit"


@pytest.mark.parametrize("text", ["goodput", "goodput:", "speed", "ttft", "ttft_p95=1s"])
def test_other_objectives_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_objective(text)


@pytest.mark.parametrize(
    ("objective", "slo"),
    [("throughput", "gold:ttft_p95=1s"), ("gold:e2e_mean", None), ("goodput:gold:ttft=1s", None)],
    ids=["limit", "objective", "bound"],
)
def test_a_class_that_nobody_is_of_is_refused(objective: str, slo: str | None) -> None:
    goal = parse_goal(objective, slo)
    check_classes(goal, {"gold", None})
    with pytest.raises(ConfigError, match="'gold'; its classes: silver"):
        check_classes(goal, {"silver", None})

"""How long answers are, learned."""

from evenflow.core.output_lengths import OutputLengths


def taught(*lengths: int, into: OutputLengths | None = None) -> OutputLengths:
    learned = OutputLengths() if into is None else into
    for length in lengths:
        learned.observe("default", length)
    return learned


def test_nothing_is_known_before_a_few_answers_have_ended() -> None:
    assert taught().quantile("default", 0.5, longer_than=0) is None
    assert taught(*[5] * 7).quantile("default", 0.5, longer_than=0) is None
    assert taught(*[5] * 20).quantile("other", 0.5, longer_than=0) is None


def test_a_quantile_is_right_to_within_a_quarter() -> None:
    learned = taught(*(73 * index % 200 + 1 for index in range(200)))
    for share, true in ((0.25, 50), (0.5, 100), (0.9, 180), (1.0, 200)):
        found = learned.quantile("default", share, longer_than=0)
        assert found is not None
        assert 0.9 * true <= found <= 1.25 * true + 1


def test_short_answers_are_told_apart_exactly() -> None:
    assert taught(*[1] * 10, *[2] * 10).quantile("default", 0.4, longer_than=0) == 1


def test_old_answers_fade() -> None:
    learned = taught(*[300] * 400)
    taught(*[4] * 1200, into=learned)
    assert learned.quantile("default", 0.8, longer_than=0) == 4


def test_only_longer_answers_say_how_long_a_long_one_will_be() -> None:
    learned = taught(*[4] * 100, *[300] * 20)
    found = learned.quantile("default", 0.5, longer_than=4)
    assert found is not None
    assert 300 <= found <= 375
    assert learned.quantile("default", 0.5, longer_than=1000) is None


def test_an_answer_longer_than_any_bucket_counts_as_the_longest() -> None:
    learned = taught(*[10**9] * 10)
    found = learned.quantile("default", 1.0, longer_than=0)
    assert found is not None
    assert found > 10**5

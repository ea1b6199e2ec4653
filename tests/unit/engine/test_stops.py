"""Stop strings in a stream of text."""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from evenflow.core.errors import InvalidRequest
from evenflow.engine.stops import MAX_STOP_CHARS, StopMatcher


def run(pieces: list[str], stop: list[str], *, include: bool = False, unarmed: int = 0) -> tuple[str, str | None]:
    """The whole text that comes out; the first `unarmed` pieces may not end a match."""
    matcher = StopMatcher(stop, include_stop_str_in_output=include)
    out = []
    for index, piece in enumerate(pieces):
        out.append(matcher.push(piece, armed=index >= unarmed))
        if matcher.matched is not None:
            return "".join(out), matcher.matched
    out.append(matcher.flush())
    return "".join(out), None


def expected(text: str, stop: list[str], *, include: bool, after: int) -> tuple[str, str | None]:
    """By looking at all of it: the match that ends first, beyond the first `after` characters; then the longest."""
    for end in range(after + 1, len(text) + 1):
        matches = [s for s in stop if text[:end].endswith(s)]
        if matches:
            longest = max(matches, key=len)
            return text[: end if include else end - len(longest)], longest
    return text, None


few_letters = st.text(alphabet="ab¢", max_size=8)


@given(
    pieces=st.lists(few_letters, max_size=12),
    stop=st.lists(st.text(alphabet="ab¢", min_size=1, max_size=6), max_size=4),
    include=st.booleans(),
    unarmed=st.integers(0, 6),
)
def test_the_text_is_cut_before_the_first_match_however_it_comes(
    pieces: list[str], stop: list[str], include: bool, unarmed: int
) -> None:
    after = len("".join(pieces[:unarmed]))
    wanted = expected("".join(pieces), stop, include=include, after=after)
    event(f"matched: {wanted[1] is not None}")
    assert run(pieces, stop, include=include, unarmed=unarmed) == wanted


@given(text=st.text(alphabet="ab", max_size=30), stop=st.lists(st.text("ab", min_size=1, max_size=6), min_size=1))
def test_no_more_is_held_back_than_may_become_a_stop_string(text: str, stop: list[str]) -> None:
    matcher = StopMatcher(stop)
    out = ""
    for index, char in enumerate(text):
        out += matcher.push(char)
        if matcher.matched is not None:
            return
        known = text[: index + 1]
        longest = max(n for s in stop for n in range(len(s)) if known.endswith(s[:n]))
        assert out == known[: len(known) - longest]


def test_a_stop_string_inside_one_piece_is_found() -> None:
    assert run(["well, STOP here"], ["STOP"]) == ("well, ", "STOP")


def test_a_stop_string_across_many_pieces_is_found_and_nothing_of_it_shows() -> None:
    assert run(["x<", "|", "en", "d", "|", ">y"], ["<|end|>"]) == ("x", "<|end|>")


def test_text_that_only_began_like_a_stop_string_comes_out() -> None:
    matcher = StopMatcher(["<|end|>"])
    assert [matcher.push(piece) for piece in ["x<|", "en", "ough"]] == ["x", "", "<|enough"]


def test_held_text_is_released_when_generation_ends() -> None:
    matcher = StopMatcher(["<|end|>"])
    assert matcher.push("x<|en") == "x"
    assert matcher.flush() == "<|en"


def test_the_match_that_ends_first_wins_then_the_longest() -> None:
    assert run(["abcd"], ["abcd", "bc"]) == ("a", "bc")
    assert run(["abcd"], ["cd", "bcd", "d"]) == ("a", "bcd")


def test_a_match_that_did_not_count_does_not_hide_the_next() -> None:
    assert run(["aab", "ab"], ["ab"], unarmed=1) == ("aab", "ab")


@pytest.mark.parametrize(("stop", "complaint"), [([""], "empty"), (["a" * MAX_STOP_CHARS, "b"], "characters in all")])
def test_stop_strings_that_cannot_be_served_are_refused(stop: list[str], complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint) as refused:
        StopMatcher(stop)
    assert refused.value.param == "stop"

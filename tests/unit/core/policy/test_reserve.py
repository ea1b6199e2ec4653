"""How much memory a request must find when it comes in."""

from evenflow.core.output_lengths import OutputLengths
from evenflow.core.policy.reserve import ReserveExpected, ReserveKnown, ReserveMax
from evenflow.core.request import Place, Request, RequestId, RequestState, SamplingParams

BATCH = Place("batch", "batch", "batch", is_long=False)


def state(*, prompt: int = 3, max_tokens: int = 100, output: int = 0) -> RequestState:
    request = Request(RequestId("a"), (1,) * prompt, SamplingParams(max_tokens=max_tokens), 0.0)
    made = RequestState(request, key=(0,), place=BATCH)
    made.token_ids += [7] * output
    return made


def taught(*lengths: int) -> OutputLengths:
    learned = OutputLengths()
    for length in lengths:
        learned.observe("batch", length)
    return learned


def test_everything_known_is_reserved() -> None:
    assert ReserveKnown().tokens(state(output=1)) == 4


def test_the_longest_answer_is_reserved_but_for_its_last_token() -> None:
    assert ReserveMax().tokens(state(max_tokens=10)) == 12
    assert ReserveMax().tokens(state(max_tokens=10, output=4)) == 12


def test_before_anything_is_learned_the_longest_answer_is_expected() -> None:
    assert ReserveExpected(0.5, OutputLengths()).tokens(state(max_tokens=10)) == 12


def test_the_usual_answer_is_expected() -> None:
    lengths = taught(*[4] * 30, *[60] * 10)
    assert ReserveExpected(0.5, lengths).tokens(state()) == 3 + 4 - 1
    assert 3 + 60 - 1 <= ReserveExpected(0.9, lengths).tokens(state()) <= 3 + 75 - 1


def test_no_answer_is_expected_to_be_longer_than_it_may_be() -> None:
    assert ReserveExpected(0.9, taught(*[60] * 20)).tokens(state(max_tokens=5)) == 3 + 5 - 1


def test_an_answer_that_outgrew_the_usual_is_compared_with_those_that_did_too() -> None:
    lengths = taught(*[4] * 30, *[60] * 10)
    tokens = ReserveExpected(0.5, lengths).tokens(state(output=20))
    assert 3 + 60 - 1 <= tokens <= 3 + 75 - 1


def test_only_the_maximum_promises_that_memory_never_runs_out() -> None:
    values = {
        piece.name: piece.bounds()[0].value
        for piece in (ReserveKnown(), ReserveMax(), ReserveExpected(0.5, OutputLengths()))
    }
    assert values == {"prompt": None, "max": 0, "expected": None}

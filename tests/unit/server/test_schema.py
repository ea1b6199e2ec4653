"""The tables of fields, errors and limits agree with what they are about."""

from typing import get_type_hints

import pytest

from evenflow.core import errors as core_errors
from evenflow.core.errors import ConfigError, EvenflowError, RequestError
from evenflow.server import errors as server_errors
from evenflow.server.errors import ANSWERS, answer_for, error_body
from evenflow.server.limits import ServerLimits
from evenflow.server.schema import REFUSED, REFUSED_FIELDS, ChatRequest, CompletionRequest, Message

IGNORED = {"metadata", "prompt_cache_retention", "prompt_cache_options"}


def test_every_field_of_any_type_is_refused_or_ignored_by_name() -> None:
    for kind in (CompletionRequest, ChatRequest, Message):
        free = {name for name, hint in get_type_hints(kind).items() if hint is object}
        assert free - IGNORED == set(REFUSED_FIELDS[kind])


def test_every_refused_name_is_a_field() -> None:
    assert set(REFUSED) == {name for names in REFUSED_FIELDS.values() for name in names}


def test_echo_is_served_for_completions_and_refused_for_chat() -> None:
    assert "echo" not in REFUSED_FIELDS[CompletionRequest]
    assert "echo" in REFUSED_FIELDS[ChatRequest]


@pytest.mark.parametrize("module", [core_errors, server_errors])
def test_every_error_that_a_client_can_cause_has_a_4xx_of_its_own(module: object) -> None:
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, RequestError)]
    assert len(kinds) >= 5
    for kind in kinds:
        # A deadline that passed is what a gateway calls a timeout; every other is the client's to mend.
        assert 400 <= ANSWERS[kind].status < 500 or kind is core_errors.DeadlineTooSoon


def test_an_error_is_answered_as_its_nearest_ancestor() -> None:
    class Special(core_errors.ContextOverflow):
        pass

    assert answer_for(Special("x")).code == "context_length_exceeded"
    assert answer_for(EvenflowError("x")).status == 500
    assert answer_for(KeyError("x")).status == 500


def test_only_our_own_errors_say_what_happened() -> None:
    assert error_body(core_errors.EngineUnavailable("dead")).error.message == "dead"
    assert "secret" not in error_body(KeyError("secret")).error.message


def test_a_message_is_cut_and_always_text() -> None:
    message = error_body(core_errors.InvalidRequest("\ud800" + "x" * 10_000)).error.message
    assert message.startswith("?xxx")
    assert len(message) < 1000


@pytest.mark.parametrize("name", list(ServerLimits.__slots__))
def test_a_limit_below_its_least_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        ServerLimits(**{name: -1})


def test_more_logprobs_than_the_engine_gives_cannot_be_allowed() -> None:
    with pytest.raises(ConfigError, match="max_logprobs"):
        ServerLimits(max_logprobs=21)

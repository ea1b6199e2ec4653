"""What ends a command."""

import signal

import pytest

from evenflow.cli.signals import ending_as_interrupted, ending_in_order


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_keeps_what_it_saw_is_interrupted(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), ending_as_interrupted():
        signal.raise_signal(number)
    assert signal.getsignal(number) == before


def test_a_run_in_the_background_is_interrupted_too() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), ending_as_interrupted():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_has_started_something_leaves_with_the_signals_status(number: signal.Signals) -> None:
    with pytest.raises(SystemExit) as ended, ending_in_order():
        signal.raise_signal(number)
    assert ended.value.code == 128 + number

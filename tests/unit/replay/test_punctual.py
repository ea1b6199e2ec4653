"""What a thread asks of the kernel to be woken on time, and takes back."""

import os
import sys
from pathlib import Path

import pytest

from evenflow.replay.punctual import punctual

SLACK = Path("/proc/self/timerslack_ns")


@pytest.mark.skipif(sys.platform != "linux" or not os.access(SLACK, os.R_OK), reason="needs Linux's timer slack")
def test_timers_are_exact_inside_and_as_they_were_outside() -> None:
    before = SLACK.read_text()
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    with punctual():
        assert int(SLACK.read_text()) == 1
        assert os.getpriority(os.PRIO_PROCESS, 0) == nice
    assert SLACK.read_text() == before

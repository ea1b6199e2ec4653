"""What others took is what is left of the machine's busy time."""

import os
import time

import pytest

from evenflow.bench.peers.disturbance import Reading, machine_seconds, read, share_of_others

STAT = "cpu  1000 200 300 90000 50 6 7 8 9 10\ncpu0 500 100 150 45000 25 3 3 4 4 5\n"


def test_busy_time_is_all_but_idling_and_waiting() -> None:
    assert machine_seconds(STAT) == pytest.approx((1000 + 200 + 300 + 6 + 7) / os.sysconf("SC_CLK_TCK"))


def test_what_neither_the_contender_nor_we_took_was_taken_by_others() -> None:
    before, after = Reading(10.0, 100.0, 50.0), Reading(20.0, 118.0, 63.0)
    assert share_of_others(before, after, num_cores=2) == pytest.approx(5 / 20)
    assert share_of_others(before, before, num_cores=2) == 0.0
    assert share_of_others(before, Reading(20.0, 112.9, 63.0), num_cores=2) == 0.0, "ticks are coarse"


def test_our_own_work_is_not_that_of_others() -> None:
    before = read(os.getsid(0))
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass
    after = read(os.getsid(0))
    assert after.measured - before.measured >= 0.09
    assert after.clock > before.clock
    assert after.machine - before.machine >= 0.05

"""Hypothesis profiles: `ci` (the default) tries the same examples every time, `dev` tries new ones, `soak` tries many.

Choose with the environment variable HYPOTHESIS_PROFILE. Tests compute on one thread unless OMP_NUM_THREADS says
otherwise: barriers between threads cost a time slice each where something else runs on the same cores.
"""

import gc
import os
import signal
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; child processes inherit it

import pytest
from hypothesis import HealthCheck, settings

_SLOW_TO_DRAW = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "ci", max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=_SLOW_TO_DRAW
)
settings.register_profile("dev", max_examples=100, deadline=None, suppress_health_check=_SLOW_TO_DRAW)
settings.register_profile("soak", max_examples=2000, deadline=None, suppress_health_check=_SLOW_TO_DRAW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What lives until the end is walked by no garbage collection: torch's modules and thousands of tests.

    A load generator collects before every run, which took a tenth of a second of each of its tests.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """As at a terminal: a shell starts what it puts into the background with SIGINT ignored, and who runs tests in
    parallel lets an interrupt do nothing."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)

"""Hypothesis profiles: `ci` (the default) tries the same examples every time, `dev` tries new ones, `soak` tries many.

Choose with the environment variable HYPOTHESIS_PROFILE.
"""

import os

from hypothesis import HealthCheck, settings

_SLOW_TO_DRAW = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "ci", max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=_SLOW_TO_DRAW
)
settings.register_profile("dev", max_examples=100, deadline=None, suppress_health_check=_SLOW_TO_DRAW)
settings.register_profile("soak", max_examples=5000, deadline=None, suppress_health_check=_SLOW_TO_DRAW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

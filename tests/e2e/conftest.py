"""One server on a real model for all tests that only ask it something: starting it takes seconds."""

from collections.abc import Iterator

import pytest

from e2e.real_server import NARROW, REAL, RealServer, serving


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server"), *REAL, *NARROW) as server:
        yield server

"""The dashboard asks for series that exist, and its first row only for those that vLLM has too."""

import json

import pytest

from evenflow.observe.grafana import COMMON, OWN, dashboard, queries, series_asked_for, series_names


@pytest.mark.parametrize("query", list(queries()))
def test_a_query_asks_for_series_that_are_exported(query: str) -> None:
    asked = series_asked_for(query)
    assert asked
    assert asked <= series_names()
    assert query.count("(") == query.count(")")


def test_the_first_row_draws_a_vllm_server_as_well() -> None:
    asked = {name for panel in COMMON for _, query in panel.queries for name in series_asked_for(query)}
    assert all(name.startswith("vllm:") for name in asked)
    own = {name for panel in OWN for _, query in panel.queries for name in series_asked_for(query)}
    assert all(name.startswith("evenflow:") for name in own)


def test_no_two_panels_overlap_and_none_is_outside() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(dashboard())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_every_panel_has_a_number_of_its_own() -> None:
    numbers = [panel["id"] for panel in json.loads(dashboard())["panels"]]
    assert len(set(numbers)) == len(numbers) == len(COMMON) + len(OWN) + 2

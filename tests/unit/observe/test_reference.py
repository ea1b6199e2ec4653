"""The generated pages are those of the code."""

from pathlib import Path

import pytest

from evenflow.core.events import StepRecord
from evenflow.observe.reference import PAGES, events_page, main, metrics_page

FOLDER = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_in_docs_is_what_the_code_says(name: str) -> None:
    remedy = "run: python -m evenflow.observe.reference docs/reference"
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), remedy


def test_the_pages_are_written_where_asked(tmp_path: Path) -> None:
    main(tmp_path / "reference")
    assert {path.name for path in (tmp_path / "reference").iterdir()} == set(PAGES)


def test_every_field_and_series_has_its_row() -> None:
    assert all(f"| `{name}` |" in events_page() for name in StepRecord._fields)
    assert "| `vllm:time_to_first_token_seconds` | histogram |" in metrics_page()

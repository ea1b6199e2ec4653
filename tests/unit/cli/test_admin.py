"""What `evenflow admin set` prints: what changed, and nothing else."""

import pytest

from evenflow.cli import admin


def state(order: str, seats: float) -> dict[str, object]:
    bounds = [
        {"name": "waiting", "value": 2.0, "unit": "s", "sentence": f"by {order}"},
        {"name": "steps", "value": None, "unit": "", "sentence": "as it was"},
    ]
    return {"policy": {"order": order, "max_seats": seats}, "bounds": bounds}


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], after: dict[str, object]) -> str:
    answers = {"GET": state("fcfs", 0.5), "PATCH": after}
    monkeypatch.setattr(admin, "_ask", lambda method, url, key, body: answers[method])
    admin.change("order=priority")
    return capsys.readouterr().out


def test_a_change_prints_the_settings_and_bounds_that_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = said(monkeypatch, capsys, state("priority", 0.5))
    for text, printed in {"fcfs": True, "by priority": True, "max_seats": False, "as it was": False}.items():
        assert (text in out) is printed


def test_a_change_to_what_holds_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Nothing changed" in said(monkeypatch, capsys, state("fcfs", 0.5))

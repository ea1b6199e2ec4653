"""What `evenflow admin set` prints: what changed, and nothing else."""

from email.message import Message
from http.client import BadStatusLine, IncompleteRead
from io import BytesIO
from urllib.error import HTTPError

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


class Said:
    """An answer in pieces, the last one again and again if `endless`."""

    def __init__(self, *pieces: bytes, endless: bool = False) -> None:
        self._pieces = [*pieces] if endless else [*pieces, b""]

    def read1(self, size: int, /) -> bytes:
        return self._pieces.pop(0) if len(self._pieces) > 1 else self._pieces[0]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Said(b"<html>"), "http://h did not answer as an evenflow server does"),
        (Said(b"{}"), "missing required field `policy`"),
        (Said(b'{"policy":[],"bounds":[]}'), "Expected `object`, got `array`"),
        (Said(b'{"policy":{},"bounds":[{"x":1}]}'), "missing required field `name`"),
        (Said(b'{"x":' + b"[" * 100_000), "did not answer as an evenflow server does"),
        (Said(b" " * (1 << 16), endless=True), "http://h sends an answer without an end"),
        (BadStatusLine("hello"), "cannot reach http://h: hello"),
        (IncompleteRead(b""), "cannot reach http://h: IncompleteRead"),
        (UnicodeError("label too long"), "cannot reach http://h: label too long"),
        (TimeoutError("timed out"), "cannot reach http://h: timed out"),
    ],
)
def test_a_server_that_is_no_evenflow_is_told_in_a_sentence(
    answer: Said | Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: object) -> Said:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(admin, "_opened", opened)
    with pytest.raises(admin.AdminError) as caught:
        admin.show(url="http://h")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"wrong key"}}', "wrong key"),
        (b'{"error":"no"}', "http://h answered 404, and not as an evenflow server does"),
        (b'{"error":null}', "http://h answered 404, and not as an evenflow server does"),
        (b"[]", "http://h answered 404, and not as an evenflow server does"),
        (b"Not Found", "http://h answered 404, and not as an evenflow server does"),
    ],
)
def test_a_refusal_is_told_whatever_its_form(body: bytes, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> Said:
        raise HTTPError("http://h", 404, "Not Found", Message(), BytesIO(body))

    monkeypatch.setattr(admin, "_opened", refused)
    with pytest.raises(admin.AdminError) as caught:
        admin.show(url="http://h")
    assert message in str(caught.value)


def test_the_key_does_not_follow_a_redirect() -> None:
    answer = admin._NoRedirects().redirect_request  # urllib raises the redirect as an HTTPError then
    assert answer("request", None, 302, "Found", {}, "http://elsewhere") is None


@pytest.mark.parametrize("key", ["a\nb", "é"])
def test_a_key_that_cannot_be_sent_is_not_shown(key: str) -> None:
    with pytest.raises(admin.AdminError, match="the admin key cannot be sent") as caught:
        admin.show(url="http://h", admin_key=key)
    assert key not in str(caught.value)

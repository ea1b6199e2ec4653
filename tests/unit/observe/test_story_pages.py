"""A story as text and as a picture: complete, readable, and safe whatever a client calls its request."""

import xml.etree.ElementTree as ET
from html import escape

from evenflow.core.events import Arrived, Event, Rejected
from evenflow.core.plan import WaitReason
from evenflow.core.request import RequestId
from evenflow.observe.story import Story, story_of
from evenflow.observe.story_svg import render_svg
from evenflow.observe.story_text import REASONS, render_text
from evenflow.observe.waits import WAIT_REASONS
from recording import busy_runs, flat
from story import arrived, finished, first_token, scheduled, step


def story(events: list[Event], name: str = "a") -> Story:
    found = story_of(events, RequestId(name))
    assert found is not None
    return found


def test_the_text_tells_every_phase_with_reason_and_company() -> None:
    events: list[Event] = [
        arrived("a", 0.0, prompt=1234),
        step(1, 0.0, 2.0, fed="x", door=WaitReason.KV, head="z"),
        scheduled("a", 2, 2.0),
        first_token("a", 2, 3.0),
        step(2, 2.0, 3.0, fed="axy"),
        finished("a", 3, 4.0, outputs=2),
        step(3, 3.0, 4.0, fed="a"),
    ]
    text = render_text(story(events))
    assert "1,234 prompt tokens" in text
    assert "first token after 3 s, finished (length) after 4 s with 2 tokens" in text
    assert "waited: not enough free KV blocks for all its tokens, behind z (step 1)" in text
    assert "prefill: 1 token in step 2, up to 3 requests in a step; with x, y" in text
    assert "decode: 1 token in step 3" in text
    assert "it waited for: kv 2 s" in text


def test_a_wait_for_tokens_says_who_got_them() -> None:
    told = story(
        [
            arrived("a", 0.0),
            step(1, 0.0, 1.0, fed="vwxyz", door=WaitReason.BUDGET, head="a"),
            step(2, 1.0, 2.0, fed="x", door=WaitReason.BUDGET, head="a"),
        ]
    )
    said = "the step's token budget was spent on others: x (2 tokens), v (1 token), w (1 token), y (1 token) and 1 more"
    assert f"waited: {said} (2 steps, 1 to 2)" in render_text(told)
    assert escape(said) in render_svg(told)


def test_a_refused_request_says_why() -> None:
    text = render_text(story([Rejected(1.0, RequestId("a"), "the prompt is too long")]))
    assert "refused when it came: the prompt is too long" in text


def test_the_text_says_that_an_id_was_used_before() -> None:
    refused = Rejected(1.0, RequestId("a"), "the prompt is too long")
    said = "1 earlier request had it too"
    assert said not in render_text(story([arrived("a", 2.0)]))
    assert said in render_text(story([refused, arrived("a", 2.0)]))


def test_an_unfinished_request_and_a_log_that_begins_late_say_so() -> None:
    text = render_text(story([first_token("a", 7, 1.0), step(7, 0.5, 1.0, fed="a")]))
    assert "begins in the middle of its life" in text
    assert "not finished yet" in text


def test_every_reason_has_words() -> None:
    assert set(WAIT_REASONS) <= set(REASONS)


def test_the_picture_is_well_formed_and_its_bars_tile_the_life() -> None:
    for run in busy_runs(2):
        events = flat(run)
        for name in {str(event.request_id) for event in events if isinstance(event, Arrived)}:
            told = story(events, name)
            root = ET.fromstring(render_svg(told))
            bars = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if rect.get("height") == "36"]
            assert len(bars) == len(told.phases)


def test_the_label_of_a_first_token_at_the_very_end_is_beside_the_time_of_the_end() -> None:
    events: list[Event] = [
        arrived("a", 0.0),
        scheduled("a", 1, 0.0),
        first_token("a", 1, 1.0),
        finished("a", 1, 1.0),
        step(1, 0.0, 1.0, emitted="a", running=0),
    ]
    drawn = ET.fromstring(render_svg(story(events))).iter("{http://www.w3.org/2000/svg}text")
    places = {text.text: float(text.attrib["x"]) for text in drawn}
    assert places["first token"] + 70 < places["1 s"] - 50


def test_a_hostile_id_stays_text() -> None:
    name = '<script>alert(1)</script>"&'
    picture = render_svg(story([arrived(name, 0.0), scheduled(name, 1, 2.0), step(1, 2.0, 3.0)], name))
    assert "<script>" not in picture
    ET.fromstring(picture)

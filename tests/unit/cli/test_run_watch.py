"""What a load run is doing, from the client's side and the engine's."""

from pathlib import Path

from evenflow.cli.run_watch import Phase, RunWatch, StepFold
from evenflow.core.events import StepRecord
from evenflow.core.request import RequestId
from evenflow.observe.log import EventLogWriter
from recording import busy_runs, flat
from story import arrived, scheduled, step
from unit.cli.crowd import cut, done, failed, planned, sent

NAME = RequestId("cmpl-demo-00")


def fed(number: int, *, emitted: bool) -> StepRecord:
    """A step that computed four tokens of the request."""
    record = step(number, float(number), number + 1.0, emitted="a")
    return record._replace(scheduled=((NAME, 4),), emitted=(NAME,) if emitted else ())


def test_each_iteration_has_the_requests_that_the_engine_says_it_ran() -> None:
    num_mixed = 0
    for run in busy_runs(4):
        fold = StepFold()
        records = [event for event in flat(run) if isinstance(event, StepRecord)]
        for event in flat(run):
            fold.feed(event)
        assert len(fold.latest) == len(fold.tokens) == len(records)
        for iteration, record in zip(fold.latest, records, strict=True):
            assert iteration.num_requests == record.num_scheduled
            assert iteration.num_tokens == record.prefill_tokens + record.decode_tokens
            assert (iteration.num_prefill > 0) == (record.prefill_tokens > 0)
            assert (iteration.num_decode > 0) == (record.decode_tokens > 0)
        assert fold.num_mixed == sum(i.num_prefill > 0 and i.num_decode > 0 for i in fold.latest)
        assert fold.num_shared == sum(i.num_requests > 1 for i in fold.latest)
        assert fold.num_preemptions == sum(record.preemptions for record in records)
        num_mixed += fold.num_mixed
    assert num_mixed > 10


def test_a_request_is_what_its_client_and_the_engine_say(tmp_path: Path) -> None:
    requests = [sent(0), sent(1), sent(2, tokens=1), done(3), cut(4, tokens=2), failed(5), planned(6)]
    path = tmp_path / "events.jsonl"
    with EventLogWriter(path) as log, RunWatch(requests, path) as watch:
        log.write([arrived(NAME, 0.0), scheduled(NAME, 1, 0.0)])
        watch.look()
        assert [watch.phase(request) for request in requests] == [
            Phase.PREFILL,
            Phase.QUEUED,
            Phase.DECODE,
            Phase.DONE,
            Phase.CUT,
            Phase.FAILED,
            Phase.TO_COME,
        ]
        assert set(watch.counts().values()) == {1}


def test_a_prompt_grows_by_its_chunks_until_its_first_token(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    request = sent(0)
    with RunWatch([request], path) as watch:
        watch.look()
        assert watch.prompt_computed(request) is None  # there is no log yet
        with EventLogWriter(path) as log:
            watch.look()
            log.write([arrived(NAME, 0.0, prompt=12), scheduled(NAME, 1, 0.0, cached=4)])
            watch.look()
            assert watch.prompt_computed(request) == 4
            log.write([fed(1, emitted=False)])
            log.flush()
            watch.look()
            assert watch.prompt_computed(request) == 8
            log.write([fed(2, emitted=True)])
            log.flush()
            watch.look()
            assert watch.prompt_computed(request) is None
        assert [step.num_prefill for step in watch.steps.latest] == [1, 1]

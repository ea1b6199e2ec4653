"""From a trace to planned requests."""

import pytest

from evenflow.core.errors import ConfigError, EvenflowError
from evenflow.replay.load import LoadOptions, make_load
from evenflow.replay.run import Replay
from evenflow.replay.server_facts import ServerUnusable
from evenflow.replay.sweep import at_rates, parse_scales, sweep
from evenflow.workload.trace import PrefixBlocks, Trace, TraceRequest
from records import result


def trace(*requests: TraceRequest, unit: str | None = "s") -> Trace:
    return Trace("t.csv", "azure", requests, len(requests), time_unit=unit)


TEN = trace(*(TraceRequest(float(i), 100 + i, 10 + i, tenant=f"t{i}") for i in range(10)))


def test_recorded_times_are_kept() -> None:
    load = make_load(TEN, LoadOptions(), None)
    assert [plan.send_at for plan in load.plans] == [float(i) for i in range(10)]
    assert [plan.request_id for plan in load.plans][:2] == ["replay-000000", "replay-000001"]
    assert (load.num_prompt_tokens, load.num_output_tokens) == (1045, 145)
    assert load.notes == ()


def test_a_request_keeps_its_name_in_any_window() -> None:
    """So that two runs of the same part of a trace can be paired."""
    load = make_load(TEN, LoadOptions(window="3s..6s", rate_scale=2.0), None)
    assert [plan.request_id for plan in load.plans] == ["replay-000003", "replay-000004", "replay-000005"]
    assert [plan.send_at for plan in load.plans] == [0.0, 0.5, 1.0]
    assert [plan.tenant for plan in load.plans] == ["t3", "t4", "t5"]
    assert load.notes == (
        "3 of 10 requests are in the window 3s..6s",
        "the arrival rate is scaled by 2",
    )


def test_what_is_cut_is_said() -> None:
    load = make_load(TEN, LoadOptions(length_scale=0.5), 40)
    assert all(plan.num_prompt_tokens + plan.max_tokens <= 40 for plan in load.plans)
    assert load.notes == ("lengths are scaled by 0.5", "10 of 10 requests are cut to fit a context of 40 tokens")
    wider = make_load(TEN, LoadOptions(max_model_len=1000), 40)
    assert wider.notes == (), "what the user says goes before what the server says"


def test_another_process_replaces_the_times() -> None:
    load = make_load(TEN, LoadOptions(arrivals="uniform", rate=4.0), None)
    assert [plan.send_at for plan in load.plans][:3] == [0.0, 0.25, 0.5]
    assert load.facts["arrivals"] == "uniform, 4/s"
    one, other = (make_load(TEN, LoadOptions(arrivals="gamma", rate=4.0, burstiness=0.5, seed=s), None) for s in (1, 1))
    assert one.plans == other.plans


def test_coarse_clocks_are_said_and_spread_on_request() -> None:
    ticked = trace(*(TraceRequest(3.0 * (i // 10), 100, 10) for i in range(40)))
    literal, spread = (make_load(ticked, LoadOptions(spread_ticks=on), None) for on in (False, True))
    assert len({plan.send_at for plan in literal.plans}) == 4
    assert len({plan.send_at for plan in spread.plans}) == 40
    assert "40 requests share 4 instants, about 3 s apart; they are sent in bursts" in literal.notes[0]
    assert "each was sent at a random time between its instant and the next" in spread.notes[0]
    fine = make_load(TEN, LoadOptions(spread_ticks=True), None)
    assert fine.notes == ("no coarse clock was found in the trace: nothing was spread",)


def test_prefixes_and_text_go_along() -> None:
    prefix = PrefixBlocks(16, (1, 2))
    (plan,) = make_load(trace(TraceRequest(0.0, 20, 5, name="a", parent="b", prefix=prefix)), LoadOptions(), None).plans
    assert (plan.prefix, plan.name, plan.parent) == (prefix, "a", "b")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "limit must be at least 1"),
        ({"arrivals": "often"}, "arrivals must be one of recorded, poisson"),
        ({"arrivals": "poisson"}, "poisson arrivals need --rate"),
        ({"rate": 3.0}, "recorded ones take --rate-scale"),
        ({"arrivals": "staircase", "stages": "fast"}, "stages are like 2x30,4x30"),
        ({"arrivals": "staircase"}, "a staircase needs stages"),
        ({"stages": "1x2"}, "stages are for --arrivals staircase"),
        ({"window": "5s"}, "window must be like 10m..20m"),
        ({"window": "b..c"}, "window must be a time"),
        ({"window": "90s.."}, "no request arrives between 90.0 s and the end"),
        ({"rate_scale": 0.0}, "rate_scale must be above 0"),
        ({"rate_scale": float("nan")}, "rate_scale must be above 0"),
        ({"rate_scale": float("inf")}, "rate_scale must be above 0 and at most 1e+06"),
        ({"rate_scale": 1e-308}, "at this rate the last of 10 requests would come after inf days"),
        ({"arrivals": "uniform", "rate": 1e-9}, "would come after 1.04e+05 days; at most 400 make sense"),
        ({"arrivals": "uniform", "rate": 1e-308}, "a rate must be above 0"),
        ({"arrivals": "gamma", "rate": 1.0, "burstiness": 1e-308}, "burstiness must be between"),
        ({"arrivals": "staircase", "stages": "1xinf"}, "a stage must last longer than 0 s and end"),
        ({"length_scale": float("inf")}, "length_scale must be above 0 and at most"),
        ({"length_scale": 1e6, "limit": 10**30}, "length_scale 1e+06 makes 109 tokens more than any model takes"),
        ({"window": "9" * 400 + ".."}, "window must be less than 30 years"),
        ({"length_scale": -1.0}, "length_scale must be above 0"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_load(TEN, LoadOptions(**options), None)  # type: ignore[arg-type]  # as declared above
    assert message in str(caught.value)


def test_a_trace_without_times_needs_a_process() -> None:
    untimed = trace(TraceRequest(0.0, 1, 1), unit=None)
    with pytest.raises(ConfigError, match=r"t\.csv has no times; give --arrivals and --rate, or --users"):
        make_load(untimed, LoadOptions(), None)
    with pytest.raises(ConfigError, match="so it has no window"):
        make_load(untimed, LoadOptions(window="0..5"), None)
    assert len(make_load(untimed, LoadOptions(arrivals="poisson", rate=1.0), None).plans) == 1


# ---- several points


def test_15_a_point_that_fails_is_an_error_of_a_type_and_the_others_go_on() -> None:
    def run(what: Replay):  # type: ignore[no-untyped-def]  # a Result
        if what.load.rate_scale == 1.0:
            raise ServerUnusable("bc: syntax error")
        return result(name=what.name)

    points = list(sweep(at_rates(Replay("r", "http://h", TEN), parse_scales("0.5,1,2")), run))
    assert [point.what.name for point in points] == ["r-x0.5", "r-x1", "r-x2"]
    assert [point.result is not None for point in points] == [True, False, True]
    assert isinstance(points[1].error, EvenflowError)


@pytest.mark.parametrize("text", ["", "1,x", "0", "1,1", "-1", "inf"])
def test_scales_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="rate_scales"):
        parse_scales(text)


def test_a_replay_with_objectives_that_are_none_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="an SLO is like"):
        Replay("r", "http://h", TEN, slo="fast")

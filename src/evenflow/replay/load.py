"""From a trace to a load: which of its requests, when, how long, and what a reader must be told about the change."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from evenflow.core.errors import ConfigError
from evenflow.replay.request import PlannedRequest
from evenflow.replay.slo import parse_seconds
from evenflow.workload.arrivals import Arrivals, Gamma, Poisson, Stage, Staircase, Uniform, retime
from evenflow.workload.plausible import MAX_SPAN_SECONDS
from evenflow.workload.trace import Trace, TraceRequest
from evenflow.workload.transform import fit_to_context, scale_lengths, scale_rate, spread_ticks, ticks_of, window

RECORDED = "recorded"
ARRIVALS = (RECORDED, "poisson", "gamma", "uniform", "staircase")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What part of a trace to send, and when.

    Attributes
    ----------
    limit
        Only the first so many rows of the trace.
    window
        Only what arrives between two times of the trace, such as 10m..20m or 600..
    arrivals
        recorded, poisson, gamma, uniform or staircase.
    rate
        Requests per second, for poisson, gamma and uniform.
    burstiness
        Shape of gamma arrivals: 1 is Poisson, less is burstier.
    stages
        Requests per second x seconds of each stage of a staircase, such as 2x30,4x30.
    rate_scale
        Factor on the recorded arrival rate.
    length_scale
        Factor on prompt and output lengths.
    spread_ticks
        Spread requests that share an instant of a coarse clock over the time to its next instant.
    max_model_len
        Cut prompts and outputs to this context; as the server says if it does.
    seed
        Seed of arrivals and of spreading. The content of prompts has its own.
    """

    limit: int | None = None
    window: str | None = None
    arrivals: str = RECORDED
    rate: float | None = None
    burstiness: float = 1.0
    stages: str | None = None
    rate_scale: float = 1.0
    length_scale: float = 1.0
    spread_ticks: bool = False
    max_model_len: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"limit must be at least 1, not {self.limit}")
        process(self)  # raises what is wrong with the arrivals


@dataclass(frozen=True, slots=True)
class Load:
    """`facts` are for people, by name; `notes` say what was changed."""

    plans: tuple[PlannedRequest, ...]
    facts: dict[str, str]
    notes: tuple[str, ...]

    @property
    def num_prompt_tokens(self) -> int:
        return sum(plan.num_prompt_tokens for plan in self.plans)

    @property
    def num_output_tokens(self) -> int:
        return sum(plan.max_tokens for plan in self.plans)


def process(options: LoadOptions) -> Arrivals | None:
    """None for recorded times."""
    if options.arrivals not in ARRIVALS:
        raise ConfigError(f"arrivals must be one of {', '.join(ARRIVALS)}, not {options.arrivals!r}")
    if options.arrivals == "staircase":
        return Staircase(_stages(options.stages or ""))
    if options.stages is not None:
        raise ConfigError("stages are for --arrivals staircase")
    if options.arrivals == RECORDED:
        if options.rate is not None:
            raise ConfigError("rate is for poisson, gamma and uniform arrivals; recorded ones take --rate-scale")
        return None
    if options.rate is None:
        raise ConfigError(f"{options.arrivals} arrivals need --rate, in requests per second")
    match options.arrivals:
        case "poisson":
            return Poisson(options.rate)
        case "gamma":
            return Gamma(options.rate, options.burstiness)
        case _:
            return Uniform(options.rate)


def _stages(text: str) -> tuple[Stage, ...]:
    try:
        pairs = [part.split("x") for part in text.split(",") if part.strip()]
        return tuple(Stage(float(rate), float(seconds.rstrip("s "))) for rate, seconds in pairs)
    except ValueError:
        raise ConfigError(f"stages are like 2x30,4x30 (requests per second x seconds), not {text!r}") from None


def _span(text: str) -> tuple[float, float | None]:
    first, dots, last = text.partition("..")
    if not dots:
        raise ConfigError(f"window must be like 10m..20m, 600.. or ..60, not {text!r}")
    start = parse_seconds(first, "window") if first.strip() else 0.0
    return start, parse_seconds(last, "window") if last.strip() else None


def make_load(trace: Trace, options: LoadOptions, max_model_len: int | None) -> Load:
    """`max_model_len` is what the server can take, if it is known."""
    notes: list[str] = []
    facts = {"trace": trace.source, "format": trace.format_name, "rows": trace.describe()}
    requests, offset = _timed(trace, options, notes)
    if options.length_scale != 1.0:
        requests = scale_lengths(requests, options.length_scale)
        notes.append(f"lengths are scaled by {options.length_scale:g}")
    _check_span(requests)
    context = options.max_model_len if options.max_model_len is not None else max_model_len
    if context is not None:
        fitted = fit_to_context(requests, context)
        requests = fitted.requests
        if fitted.num_cut:
            notes.append(f"{fitted.num_cut} of {len(requests)} requests are cut to fit a context of {context} tokens")
    arrivals = process(options)
    facts["arrivals"] = arrivals.describe() if arrivals is not None else "as recorded"
    facts["requests"] = str(len(requests))
    facts["tokens"] = (
        f"{sum(r.num_prompt_tokens for r in requests)} prompt, {sum(r.num_output_tokens for r in requests)} output"
    )
    return Load(_plans(requests, offset), facts, tuple(notes))


def _check_span(requests: Sequence[TraceRequest]) -> None:
    """A trace cannot be longer (workload/plausible.py); a rate can make it so."""
    last = requests[-1].arrival_seconds
    if not last <= MAX_SPAN_SECONDS:
        raise ConfigError(
            f"at this rate the last of {len(requests)} requests would come after {last / 86_400:.3g} days; at most "
            f"{MAX_SPAN_SECONDS / 86_400:g} make sense: raise the rate, or take fewer requests with --limit"
        )


def _timed(trace: Trace, options: LoadOptions, notes: list[str]) -> tuple[Sequence[TraceRequest], int]:
    """And which request of the trace the first of them is."""
    offset = 0
    requests: Sequence[TraceRequest] = trace.requests
    rng = Random(options.seed)
    arrivals = process(options)
    if options.window is not None:
        if trace.time_unit is None:
            raise ConfigError(f"{trace.source} has no times, so it has no window; use --limit")
        start, end = _span(options.window)
        requests = window(requests, start, end)
        offset = sum(request.arrival_seconds < start for request in trace.requests)
        notes.append(f"{len(requests)} of {len(trace.requests)} requests are in the window {options.window}")
    if arrivals is not None:
        requests = retime(requests, arrivals, rng)
    elif trace.time_unit is None:
        raise ConfigError(f"{trace.source} has no times; give --arrivals and --rate, or --users")
    else:
        requests = _ticked(requests, options, rng, notes)
    if options.rate_scale != 1.0:
        requests = scale_rate(requests, options.rate_scale)
        notes.append(f"the arrival rate is scaled by {options.rate_scale:g}")
    return requests, offset


def _ticked(
    requests: Sequence[TraceRequest], options: LoadOptions, rng: Random, notes: list[str]
) -> Sequence[TraceRequest]:
    ticks = ticks_of(requests)
    if ticks is None:
        if options.spread_ticks:
            notes.append("no coarse clock was found in the trace: nothing was spread")
        return requests
    found = f"{len(requests)} requests share {ticks.num_distinct} instants, about {ticks.seconds:g} s apart"
    if options.spread_ticks:
        notes.append(f"{found}; each was sent at a random time between its instant and the next")
        return spread_ticks(requests, ticks, rng)
    notes.append(
        f"{found}; they are sent in bursts as recorded, which production never saw (--spread-ticks spreads them)"
    )
    return requests


def _plans(requests: Sequence[TraceRequest], offset: int) -> tuple[PlannedRequest, ...]:
    """A request's id is its place in the trace, so that two runs of the same part of it can be paired."""
    return tuple(
        PlannedRequest(
            index=index,
            request_id=f"replay-{index:06d}",
            send_at=request.arrival_seconds,
            num_prompt_tokens=request.num_prompt_tokens,
            max_tokens=request.num_output_tokens,
            name=request.name,
            parent=request.parent,
            prefix=request.prefix,
            service_class=request.service_class,
            tenant=request.tenant,
            text=request.text,
        )
        for index, request in enumerate(requests, start=offset)
    )

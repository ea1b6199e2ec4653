"""For every rule a load and two servers: one whose settings bring the defect out, and one whose settings do not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from evenflow.core.policy.spec import PolicySpec
from evenflow.diagnose.run_view import Run, look_at
from simulated import Server, Timed, ask, simulate

Load = Callable[[], Sequence[Timed]]


@dataclass(frozen=True, slots=True)
class Case:
    load: Load
    bad: Server
    good: Server
    itl_target: float | None = None
    good_load: Load | None = None


def _streams(count: int, *, every: float, prompt: int, output: int) -> Load:
    """Requests that are alike, at even times."""
    return lambda: [ask(f"r{n}", n * every, prompt, output) for n in range(count)]


def _streams_and_long_prompts() -> Sequence[Timed]:
    streams = [ask(f"s{n}", n * 0.01, 16, 300) for n in range(10)]
    return streams + [ask(f"p{n}", 0.5 + n * 0.25, 2000, 2) for n in range(6)]


def _short_behind_long() -> Sequence[Timed]:
    """A long prompt every second, and just after each of them short ones."""
    long = [ask(f"l{n}", n * 1.0, 6000, 2) for n in range(3)]
    return long + [ask(f"s{n}-{i}", n * 1.0 + 0.02 * (i + 1), 20, 4) for n in range(3) for i in range(10)]


def _two_tenants() -> Sequence[Timed]:
    """One drops eighty requests at once; the other sends a small one now and then."""
    crowd = [ask(f"a{n}", 0.0, 200, 40, tenant="crowd") for n in range(80)]
    return crowd + [ask(f"b{n}", 0.1 + n * 0.1, 20, 4, tenant="quiet") for n in range(10)]


def _one_beginning(repeat: bool) -> Load:
    """At first every prompt is new; then all of them begin with the same 192 tokens."""

    def load() -> Sequence[Timed]:
        common = [Random("common").randrange(1000) for _ in range(192)]
        own = [[Random(f"own{n}").randrange(1000) for _ in range(224)] for n in range(60)]
        prompts = [tokens if n < 6 and repeat else common + tokens[:32] for n, tokens in enumerate(own)]
        return [ask(f"r{n}", n * 0.5, prompt if repeat else own[n], 4) for n, prompt in enumerate(prompts)]

    return load


CASES = {
    "squeezed prefills": Case(
        _streams(150, every=0.004, prompt=24, output=120), Server(seats=256, budget=64), Server(seats=256, budget=512)
    ),
    "output stalls": Case(_streams_and_long_prompts, Server(budget=2048), Server(budget=32)),
    "many preemptions": Case(
        _streams(40, every=0.01, prompt=64, output=200), Server(blocks=150), Server(seats=8, blocks=150)
    ),
    "too few seats": Case(_streams(40, every=0.01, prompt=64, output=60), Server(seats=4), Server(seats=64)),
    "budget above the ITL target": Case(_streams_and_long_prompts, Server(budget=2048), Server(budget=64), 0.05),
    "long prompts crowd short ones": Case(
        _short_behind_long,
        Server(budget=256),
        Server(budget=256, policy=PolicySpec(order="shortest-prompt", max_overtake=100.0, interleave="shared")),
    ),
    "one tenant crowds the others": Case(
        _two_tenants, Server(seats=8), Server(seats=8, policy=PolicySpec(fairness="vtc"))
    ),
    "cold prefix cache": Case(_one_beginning(True), Server(), Server(), good_load=_one_beginning(False)),
}


@cache
def run(rule: str, kind: str) -> Run:
    case = CASES[rule]
    bad = kind == "bad"
    load = case.load if bad or case.good_load is None else case.good_load
    return look_at(simulate(case.bad if bad else case.good, load()), itl_target=case.itl_target)


def changed(rule: str, **server: object) -> Run:
    """The same load on the bad server with some of its settings changed."""
    case = CASES[rule]
    better = replace(case.bad, **server)  # type: ignore[arg-type]  # its own fields
    return look_at(simulate(better, case.load()), itl_target=case.itl_target)

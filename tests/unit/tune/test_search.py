"""The whole search, with simulated engines: one as the cost says, and a "live" one that is not quite so."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from evenflow.core.errors import ConfigError, EvenflowError
from evenflow.replay.request import PlannedRequest
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import StepCost
from evenflow.simulate.run import simulate
from evenflow.tune.config_file import write_config
from evenflow.tune.grid import Load
from evenflow.tune.journal import Journal
from evenflow.tune.live import LiveRun
from evenflow.tune.objective import parse_goal
from evenflow.tune.page import tune_page
from evenflow.tune.race import Standing
from evenflow.tune.search import Budget, Found, Search, search
from evenflow.tune.settings import Settings, legal_cells, settings_of, simulated
from evenflow.tune.space import Space, make_space
from evenflow.tune.telling import headline, sentences
from tuning_runs import device

BASE = SimulationConfig(num_blocks=2000, prefix_caching=False)
COST = device()
VARY = ("max_num_seqs=2,16,17", "max_num_batched_tokens=64,1024", "policy=vllm", "policy.reserve=prompt")


def plans(num: int = 40) -> tuple[PlannedRequest, ...]:
    rng = Random(7)
    times = sorted(rng.uniform(0.0, num / 12) for _ in range(num))
    return tuple(
        PlannedRequest(i, f"r{i}", at, rng.randrange(100, 900), rng.randrange(4, 40)) for i, at in enumerate(times)
    )


def what(objective: str = "e2e_mean", slo: str | None = None, vary: Sequence[str] = VARY, **budget: int) -> Search:
    space: Space = make_space(vary)
    cells, illegal = legal_cells(space, BASE, None)
    load = Load(plans(), 0.0, 3)
    return Search(space, cells, illegal, parse_goal(objective, slo), load, COST, 0.05, 1, Budget(**budget))


@dataclass
class Told:
    """Who watches, and remembers."""

    simulated: list[tuple[int, int]] = field(default_factory=list)
    raced: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def simulating(self, stage: int, done: int, total: int) -> None:
        self.simulated.append((done, total))

    def racing(self, stage: int, round_number: int, label: str, place: int, total: int) -> None:
        self.raced.append(label)

    def stood(self, standing: Standing) -> None:
        pass

    def said(self, sentence: str) -> None:
        self.words.append(sentence)


@dataclass
class Machine:
    """A live engine that is a simulated one at a cost of its own; some configurations never start."""

    cost: StepCost
    broken: frozenset[int] = frozenset()
    num_runs: int = 0
    refits: int = 0

    def run(self, settings: Settings, log: Path, *, name: str, seed: int) -> LiveRun:
        self.num_runs += 1
        if settings.max_num_seqs in self.broken:
            raise EvenflowError("the server did not start")
        log.write_text("")
        config = simulated(settings, BASE, None)
        return LiveRun(simulate(plans(), self.cost, config, seed=seed).result, log, 10.0, ())

    def refit(self, logs: Sequence[Path], cost: StepCost, stage: int) -> StepCost | None:
        assert all(log.exists() for log in logs)
        self.refits += 1
        return self.cost


def run(search_: Search, folder: Path, live: Machine | None = None, watch: Told | None = None) -> Found:
    return search(search_, Journal(folder / "journal.jsonl", {"a": "b"}), folder, live, watch or Told())


def test_a_simulated_search_finds_the_best_of_the_whole_grid(tmp_path: Path) -> None:
    watch = Told()
    found = run(what(), tmp_path, watch=watch)
    best = {
        cell: sum(record.e2e or 0.0 for record in simulate(plans(), COST, config, seed=3).result.records)
        for cell, config in what().cells.items()
    }
    assert best[found.choice.cell] <= min(best.values()) * 1.01
    assert not found.is_live
    assert found.live_seconds == 0.0
    assert watch.simulated[-1] == (6, 6)
    assert settings_of(found.choice.cell).max_num_batched_tokens == 1024


def test_a_search_goes_on_where_it_stopped(tmp_path: Path) -> None:
    machine = Machine(COST)
    first = run(what(), tmp_path, machine)
    num_runs = machine.num_runs
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    # As if it had been killed in the middle.
    (tmp_path / "journal.jsonl").write_text("\n".join(lines[:4]) + "\n")
    watch, again = Told(), Machine(COST)
    second = run(what(), tmp_path, again, watch)
    assert second.choice.cell == first.choice.cell
    assert watch.simulated[0] == (3, 6)
    assert again.num_runs == num_runs
    third = Machine(COST)
    assert run(what(), tmp_path, third).choice.cell == first.choice.cell
    assert third.num_runs == 0


def test_the_machine_has_the_last_word(tmp_path: Path) -> None:
    """Its prefills take far longer than the cost says, so that large steps cost what they do not in the simulation."""
    slow = replace(COST, token_seconds=20 * COST.token_seconds, weight_seconds=0.1 * COST.weight_seconds)
    goal = ("throughput", "ttft_p50=60s,itl_p99=130ms")
    search_ = what(*goal, vary=("max_num_seqs=16", "max_num_batched_tokens=64,1024", "policy=vllm"))
    predicted = run(search_, _folder(tmp_path, "simulated"))
    found = run(search_, _folder(tmp_path, "live"), Machine(slow))
    assert settings_of(predicted.choice.cell).max_num_batched_tokens == 1024 or predicted.predicted.contenders
    assert found.is_live
    assert settings_of(found.choice.cell).max_num_batched_tokens == 64
    assert found.live_seconds > 0.0


def _folder(path: Path, name: str) -> Path:
    (path / name).mkdir()
    return path / name


def test_a_configuration_that_fails_live_is_noted_and_the_search_goes_on(tmp_path: Path) -> None:
    machine = Machine(COST, broken=frozenset({16, 17}))
    watch = Told()
    search_ = what(vary=("max_num_seqs=14,16,17", "max_num_batched_tokens=1024", "policy=vllm"))
    found = run(search_, tmp_path, machine, watch)
    assert settings_of(found.choice.cell).max_num_seqs == 14
    assert any("did not start" in word for word in watch.words)
    assert '"did":"failed"' in (tmp_path / "journal.jsonl").read_text()


def test_a_prediction_without_doubt_is_put_to_the_test(tmp_path: Path) -> None:
    search_ = what(vary=("max_num_seqs=1,16", "max_num_batched_tokens=1024", "policy=vllm"))
    found = run(search_, tmp_path, Machine(COST))
    assert len(found.predicted.contenders) == 1
    race = found.stages[0].race
    assert race is not None
    assert [cell["max_num_seqs"] for cell in race.cells].count(1) == 1
    assert len(race.cells) == 2


def test_a_grid_of_one_runs_live_once(tmp_path: Path) -> None:
    machine = Machine(COST)
    search_ = what(vary=("max_num_seqs=16", "max_num_batched_tokens=1024", "policy=vllm"))
    found = run(search_, tmp_path, machine)
    assert machine.num_runs == 1
    assert "nothing else was in the running" in " ".join(sentences(found))


def test_if_nothing_runs_live_the_prediction_is_all_there_is(tmp_path: Path) -> None:
    search_ = what(vary=("max_num_seqs=16", "max_num_batched_tokens=64,1024", "policy=vllm"))
    found = run(search_, tmp_path, Machine(COST, broken=frozenset({16})))
    assert not found.is_live
    assert "simulated" in headline(found)


def test_an_engine_that_refuses_the_load_is_a_simulation_that_failed(tmp_path: Path) -> None:
    search_ = what(vary=("max_num_seqs=16", "max_num_batched_tokens=64", "policy=vllm", "kv_share=0.001,1"))
    found = run(search_, tmp_path)
    small = next(each for each in found.predicted.candidates if each.cell["kv_share"] == 0.001)
    assert small.run.num_failed > 0
    assert found.choice.cell["kv_share"] == 1.0


def test_nothing_that_could_be_simulated_is_an_error(tmp_path: Path) -> None:
    search_ = what()
    (tmp_path / "cells").write_text("")
    with pytest.raises(ConfigError, match="cannot make the folder"):
        run(search_, tmp_path)


def test_the_page_says_of_which_race_a_run_is(tmp_path: Path) -> None:
    """A configuration may run in two: before the cost was refitted, and after."""
    found = run(what(), tmp_path, Machine(COST))
    raced = found.stages[0]
    assert raced.race is not None
    once, twice = (tune_page(replace(found, stages=(raced,) * num), {}, ()) for num in (1, 2))
    for words in ("race 1: ", "race 2: ", "Race 2 is by the cost as it was refitted"):
        assert words in twice
        assert words not in once


@pytest.mark.parametrize("slo", ["ttft_p50=60s", "ttft_p50=1us"], ids=["kept", "missed"])
def test_the_page_and_the_sentences_say_what_was_found(slo: str, tmp_path: Path) -> None:
    machine = Machine(COST)
    found = run(what("throughput", slo), tmp_path, machine)
    assert found.keeps_limits == (slo == "ttft_p50=60s")
    page = tune_page(found, {"trace": "<t>"}, ("a note",))
    for text in ("The frontier", "What max_num_seqs does", "Predicted and measured", "&lt;t&gt;", "a note"):
        assert text in page
    assert ("What stands in the way" in page) == (not found.keeps_limits)
    said = " ".join(sentences(found))
    assert "machine time" in said
    assert "raced over" in said
    write_config(tmp_path / "evenflow.toml", settings_of(found.choice.cell), None, (headline(found),))
    assert (tmp_path / "evenflow.toml").read_text().startswith("# ")

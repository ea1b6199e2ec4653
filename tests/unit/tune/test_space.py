"""The grid: from the command line or from a file, checked as a whole."""

from pathlib import Path

import pytest

from evenflow.core.errors import ConfigError
from evenflow.engine.config import EngineConfig
from evenflow.simulate.config import SimulationConfig
from evenflow.tune.settings import Settings, legal_cells, live, settings_of, simulated
from evenflow.tune.space import DEFAULTS, Space, make_space


def names_of(space: Space) -> dict[str, tuple[object, ...]]:
    return {axis.name: axis.values for axis in space.axes}


def test_a_knob_of_the_command_line_replaces_that_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text('max_num_seqs = [4, 8]\nkv_share = 1\npolicy.interleave = ["shared", "decode-first"]\n')
    space = make_space(["max_num_seqs=16,32,64", "policy.max_backfill=0"], file)
    found = names_of(space)
    assert found["max_num_seqs"] == (16, 32, 64)
    assert found["policy.interleave"] == ("shared", "decode-first")
    assert found["policy.max_backfill"] == (0,)
    assert found["policy"] == DEFAULTS["policy"]
    assert found["kv_share"] == (1.0,)
    assert len(space) == len(list(space.cells())) == 3 * 2 * 4 * 2


@pytest.mark.parametrize(
    ("vary", "saying"),
    [
        ("max_num_seqs", "name=value"),
        ("seats=1,2", "no knob 'seats'"),
        ("policy.=1", "no knob"),
        ("max_num_seqs=0", "at least 1"),
        ("max_num_seqs=1.5", "cannot be 1.5"),
        ("max_num_seqs=8,8", "twice"),
        ("kv_share=1.5", "at most 1"),
        ("policy=", "cannot be ''"),
    ],
)
def test_what_is_no_grid_is_refused_by_name(vary: str, saying: str) -> None:
    with pytest.raises(ConfigError, match=saying):
        make_space([vary])


def test_a_file_that_is_no_grid_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    for text, saying in (("max_num_seqs = [", "is no grid"), ("max_num_seqs = [[1]]", r"cannot be \[1\]")):
        file.write_text(text)
        with pytest.raises(ConfigError, match=saying):
            make_space([], file)
    with pytest.raises(ConfigError, match="cannot read the grid"):
        make_space([], tmp_path / "none.toml")


def test_a_grid_has_a_largest_size() -> None:
    with pytest.raises(ConfigError, match="at most 5000"):
        make_space([f"max_num_seqs={','.join(map(str, range(1, 3000)))}"])


def test_illegal_cells_are_left_out_with_the_reason() -> None:
    space = make_space(
        ["max_num_seqs=8", "max_num_batched_tokens=1,64", "policy=vllm", "policy.interleave=shared,decode-first"]
    )
    legal, illegal = legal_cells(space, SimulationConfig(num_blocks=100), None)
    assert len(legal) == 3
    assert [each.cell["max_num_batched_tokens"] for each in illegal] == [1]
    assert "a step of 1 token cannot be shared" in illegal[0].reason


def test_a_grid_without_a_legal_cell_is_refused_with_a_reason() -> None:
    with pytest.raises(ConfigError, match=r"no cell of the grid .* there is no 'sharing'"):
        legal_cells(make_space(["policy.interleave=sharing"]), SimulationConfig(num_blocks=100), None)


def test_a_cell_is_the_same_engine_simulated_and_live() -> None:
    space = make_space(
        ["max_num_seqs=8", "max_num_batched_tokens=64", "kv_share=0.5", "policy=vllm", "policy.order=priority"]
    )
    (cell,) = space.cells()
    settings = settings_of(cell)
    assert settings == Settings(64, 8, 0.5, "vllm", ("order=priority",))
    config = simulated(settings, SimulationConfig(num_blocks=100), None)
    engine = live(settings, EngineConfig(kv_memory="2GiB"))
    assert (config.num_blocks, engine.kv_memory) == (50, str(2**30))
    assert config.max_num_seqs == engine.max_num_seqs == 8
    assert config.spec().order == "priority"
    with pytest.raises(ConfigError, match="--kv-memory"):
        live(settings, EngineConfig())


def test_seats_bound_the_memory_that_a_live_engine_takes() -> None:
    base = SimulationConfig(num_blocks=10_000, block_size=32, max_model_len=320)
    assert simulated(Settings(max_num_seqs=8), base, None).num_blocks == 80

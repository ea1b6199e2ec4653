"""From what a person writes to a policy, and what is said where that cannot be."""

from pathlib import Path

import pytest

from evenflow.core.errors import ConfigError, PolicyError
from evenflow.core.policy.presets import PRESETS, policy_of
from evenflow.engine.policy_choice import MAX_FILE_BYTES, choose_policy, table_of


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_its_name(name: str) -> None:
    assert choose_policy(name) == policy_of(name)


def test_settings_are_laid_over_a_preset_in_tables_and_types() -> None:
    spec = choose_policy(
        "sarathi",
        ("order=priority", "max_overtake=2", "refuse_late=true", "max_num_seqs=none", "classes.batch.max_seats=0.25"),
    )
    assert (spec.order, spec.max_overtake, spec.refuse_late, spec.max_num_seqs) == ("priority", 2, True, None)
    assert {each.name: each.max_seats for each in spec.classes}["batch"] == 0.25
    assert spec.max_num_batched_tokens == 512, "what the preset says stays"


def test_a_file_starts_from_its_preset(tmp_path: Path) -> None:
    toml = tmp_path / "policy.toml"
    toml.write_text('preset = "vllm"\norder = "deadline"\n[classes.batch]\nrank = 7\n')
    spec = choose_policy(str(toml), ("max_backfill=3",))
    assert (spec.interleave, spec.order, spec.max_backfill) == ("in-order", "deadline", 3)
    json = tmp_path / "policy.json"
    json.write_text('{"preset": "vllm", "order": "deadline", "classes": {"batch": {"rank": 7}}}')
    assert choose_policy(str(json), ("max_backfill=3",)) == spec


def test_a_section_of_a_larger_file_is_the_policy(tmp_path: Path) -> None:
    toml = tmp_path / "evenflow.toml"
    toml.write_text('model = "x"\n[scheduling]\npreset = "orca"\n')
    assert choose_policy(str(toml)) == policy_of("orca")


@pytest.mark.parametrize(
    ("policy", "settings", "said"),
    [
        ("vlm", (), "did you mean vllm"),
        ("nowhere.toml", (), "cannot read the policy file nowhere.toml"),
        ("vllm", ("order",), "written name=value"),
        ("vllm", ("=1",), "written name=value"),
        ("vllm", ("odrer=fcfs",), "nearest that works: order"),
        ("vllm", ("order=3",), "3 is not of the right type; nearest that works: a word"),
        ("vllm", ("max_num_seqs=many",), "nearest that works: a whole number, or none"),
        ("vllm", ("classes=1", "classes.batch.rank=1"), "a value and fields of its own"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_do(policy: str, settings: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        choose_policy(policy, settings)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.toml", b"preset = ", "a.toml"),
        ("a.json", b"[1]", "must hold a table"),
        ("a.json", b"[" * 100_000, "a.json"),
        ("a.json", b'{"scheduling": 1}', "scheduling must be a table"),
        ("a.toml", b"\xff\xfe", "a.toml"),
        ("a.toml", b"#" * (MAX_FILE_BYTES + 1), "is larger than"),
    ],
)
def test_a_file_that_is_no_policy_is_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        choose_policy(str(path))


def test_problems_come_together() -> None:
    with pytest.raises(PolicyError) as refused:
        choose_policy("vllm", ("odrer=fcfs", "budgte=fixed"))
    assert [problem.nearest for problem in refused.value.problems] == ["order", "budget"]


def test_values_read_as_what_they_look_like() -> None:
    assert table_of(["a=1", "b=1.5", "c=false", "d=none", "e=x y", "f.g=1e3", "f.h=a=b"]) == {
        "a": 1,
        "b": 1.5,
        "c": False,
        "d": None,
        "e": "x y",
        "f": {"g": 1000.0, "h": "a=b"},
    }

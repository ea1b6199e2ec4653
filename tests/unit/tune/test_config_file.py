"""What tune writes is what serve reads."""

from pathlib import Path

import pytest

from evenflow.cli.config_file import settings_of
from evenflow.core.errors import ConfigError
from evenflow.engine.config import EngineConfig, KVDtype
from evenflow.engine.policy_choice import choose_policy
from evenflow.tune.config_file import write_config
from evenflow.tune.settings import Settings, arguments_of

KNOWN = {
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_memory",
    "kv_dtype",
    "prefix_caching",
    "policy",
    "port",
    "api_key",
}


@pytest.mark.parametrize(
    "settings",
    [
        Settings(64, 8, 1.0, "vllm", ("order=priority", "classes.batch.max_seats=0.25", "refuse_late=true")),
        Settings(64, 8, 1.0, "evenflow-balanced"),
    ],
    ids=["pieces", "preset"],
)
def test_a_written_configuration_is_served_as_it_was_found(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "evenflow.toml"
    engine = EngineConfig(kv_memory="1GiB", kv_dtype=KVDtype.INT8, prefix_caching=False)
    write_config(path, settings, engine, ("two\nlines",))
    found = settings_of(path, KNOWN)
    assert found == {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "kv_memory": "1GiB",
        "kv_dtype": "int8",
        "prefix_caching": False,
        "policy": str(path),
    }
    assert choose_policy(str(path)) == settings.spec()


def test_a_policy_of_a_file_is_written_out(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('order = "priority"\n[tenant_weights]\n"a b" = 2\n')
    settings = Settings(64, 8, 1.0, str(own), ("max_backfill=3",))
    path = tmp_path / "evenflow.toml"
    write_config(path, settings, None, ())
    assert choose_policy(str(path)) == settings.spec()


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        ("[engin]\n", r"did you mean \[engine\]"),
        ("[engine]\nmax_num_seq = 3\n", "did you mean max_num_seqs"),
        ('[server]\napi_key = "x"\n', "EVENFLOW_API_KEY"),
        ("[engine]\nmax_num_seqs = {a = 1}\n", "cannot be"),
        ('[engine]\npolicy = "vllm"\n[scheduling]\n', "keep one of them"),
        ("engine = 3\n", "must be a table"),
        ("[engine\n", "evenflow.toml"),
    ],
)
def test_a_wrong_file_is_refused_by_name(text: str, saying: str, tmp_path: Path) -> None:
    path = tmp_path / "evenflow.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=saying):
        settings_of(path, KNOWN)


def test_a_configuration_is_flags_for_everything_that_is_not_as_it_is_anyway() -> None:
    config = EngineConfig(max_num_seqs=8, kv_dtype=KVDtype.INT8, prefix_caching=False, policy_set=("a=1", "b=2"))
    assert arguments_of(config) == (
        [
            "--kv-dtype",
            "int8",
            "--max-num-seqs",
            "8",
            "--no-prefix-caching",
            "--policy-set",
            "a=1",
            "--policy-set",
            "b=2",
        ]
    )

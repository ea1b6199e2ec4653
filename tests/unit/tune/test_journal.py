"""The journal: what was done is known, whatever became of the program that did it."""

import os
from pathlib import Path

import pytest

from evenflow.core.errors import ConfigError
from evenflow.tune import journal
from evenflow.tune.journal import Failed, Journal, JournalError, Ran, Simulated

FACTS = {"trace": "t", "seed": "0"}


def test_what_was_done_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, FACTS)
    assert not journal.is_resumed
    journal.add(Simulated(0, "a", "a.npz", 1.5))
    journal.add(Failed(0, "b", "why", 0.5))
    journal.add(Ran(0, 1, "a", "a.json.gz", "a.jsonl", 20.0))
    journal.add(Failed(0, "b", "it died", 3.0, round=1))
    again = Journal(path, FACTS)
    assert again.is_resumed
    assert set(again.simulated(0)) == {"a", "b"}
    assert again.simulated(1) == {}
    assert set(again.ran(0)) == {(1, "a"), (1, "b")}
    assert again.seconds_of(live=False) == 2.0
    assert again.seconds_of(live=True) == 23.0


def test_half_a_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path, FACTS).add(Simulated(0, "a", "a.npz", 1.5))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"did":"simul')
    journal = Journal(path, FACTS)
    journal.add(Simulated(0, "b", "b.npz", 1.5))
    assert set(Journal(path, FACTS).simulated(0)) == {"a", "b"}


def test_another_search_in_the_same_folder_is_refused_by_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path, FACTS)
    with pytest.raises(ConfigError, match="seed was 0, is 1"):
        Journal(path, {**FACTS, "seed": "1"})


def test_a_file_that_is_no_journal_is_refused_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path, FACTS)
    path.write_bytes(path.read_bytes() + b'{"did":"danced"}\n')
    with pytest.raises(JournalError, match="line 2"):
        Journal(path, FACTS)


def test_a_journal_that_is_a_device_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_MAX_BYTES", 1000)
    path = tmp_path / "journal.jsonl"
    os.symlink("/dev/zero", path)
    with pytest.raises(JournalError, match="larger than"):
        Journal(path, FACTS)


def test_a_line_without_a_bottom_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"did":"began","x":' + b"[" * 100_000 + b"\n")
    with pytest.raises(JournalError, match=r"journal\.jsonl line 1 is not of a journal"):
        Journal(path, FACTS)

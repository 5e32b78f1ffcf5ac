"""A backup is there whole under its name, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.backup import BackupRefused, copy_folder

if TYPE_CHECKING:
    from pathlib import Path


def test_a_backup_that_fails_leaves_nothing(tmp_path: Path) -> None:
    data_dir, target = tmp_path / "data", tmp_path / "copies" / "monday"
    (data_dir / "transcripts" / "main").mkdir(parents=True)
    (data_dir / "transcripts" / "main" / "a.1.jsonl").write_text("{}\n")
    (data_dir / "state.db").write_text("this is no database")
    with pytest.raises(BackupRefused, match="not a database"):
        copy_folder(data_dir, target)
    assert list(target.parent.iterdir()) == []
    (data_dir / "state.db").unlink()
    assert copy_folder(data_dir, target).folder == str(target)
    assert [path.name for path in target.parent.iterdir()] == ["monday"]


def test_a_backup_that_was_cut_is_named_and_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "copy.partial").mkdir()
    with pytest.raises(BackupRefused, match=r"copy\.partial exists"):
        copy_folder(tmp_path / "data", tmp_path / "copy")

"""A backup is there whole under its name, or not at all."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from gateway.backup import BackupRefused, copy_folder, copy_tree

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


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_goes_while_it_is_copied_fails_nothing(tmp_path: Path, packed: bool) -> None:
    source = tmp_path / "transcripts" / "main"
    source.mkdir(parents=True)
    for name in ("a.1.jsonl", "b.1.jsonl", "c.2.jsonl.new"):
        (source / name).write_text("{}\n")
    copied: list[str] = []

    def copy(path: str, target: Path) -> None:
        """The other file goes first."""
        copied.append(target.name)
        if len(copied) == 1:
            (gone,) = [one for one in source.glob("*.jsonl") if one.name != target.name]
            if packed:
                gone.rename(gone.with_name(f"{gone.name}.zst"))
            else:
                gone.unlink()
        shutil.copy2(path, target)

    copy_tree(source.parent, tmp_path / "copy", unfinished=".new", copy=copy)
    there = sorted(path.name for path in (tmp_path / "copy" / "main").iterdir())
    assert there == sorted(path.name for path in source.iterdir() if path.suffix != ".new")
    assert len(there) == (2 if packed else 1)


def test_a_backup_that_may_not_read_something_names_it(tmp_path: Path) -> None:
    source = tmp_path / "transcripts"
    source.mkdir()
    (source / "a.1.jsonl").write_text("{}\n")

    def copy(path: str, target: Path) -> None:
        raise PermissionError(13, "Permission denied", path)

    with pytest.raises(PermissionError, match=r"a\.1\.jsonl"):
        copy_tree(source, tmp_path / "copy", copy=copy)


def test_links_and_everything_of_an_agents_files_are_copied_as_they_are(tmp_path: Path) -> None:
    notes = tmp_path / "data" / "workspaces" / "main"
    notes.mkdir(parents=True)
    (notes / "MEMORY.md").write_text("green")
    (notes / "plan.new").write_text("blue")
    (notes / "gone").symlink_to("nowhere")
    (notes / "link.md").symlink_to("MEMORY.md")
    copy_folder(tmp_path / "data", tmp_path / "copy")
    copied = tmp_path / "copy" / "workspaces" / "main"
    assert {path.name: path.is_symlink() for path in copied.iterdir()} == {
        "MEMORY.md": False,
        "plan.new": False,
        "gone": True,
        "link.md": True,
    }

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sessions.files import OsFiles, StorageFailed, StorageMissing
from sessions.packing import (
    pack_beside,
    packed_path,
    read_transcript,
    remove_packed,
    remove_plain,
    transcript_size,
    unpack_beside,
)

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b'{"a":1}\n' * 500


def transcript(folder: Path) -> Path:
    path = folder / "transcripts" / "main" / "X.1.jsonl"
    OsFiles().create(path, CONTENT, sync=False)
    return path


def test_a_packed_transcript_reads_as_the_plain_one_did(tmp_path: Path) -> None:
    files, path = OsFiles(), transcript(tmp_path)
    pack_beside(files, [path])
    remove_plain(files, [path])
    assert not path.exists()
    assert packed_path(path).stat().st_size < len(CONTENT) / 4
    assert packed_path(path).stat().st_mode & 0o777 == 0o600
    assert read_transcript(files, path) == CONTENT
    assert read_transcript(files, path, 8) == CONTENT[8:]
    assert transcript_size(files, path) == len(CONTENT)
    unpack_beside(files, [path])
    remove_packed(files, [path])
    assert path.read_bytes() == CONTENT
    assert not packed_path(path).exists()


def test_one_form_is_never_removed_without_the_other(tmp_path: Path) -> None:
    files, path = OsFiles(), transcript(tmp_path)
    remove_plain(files, [path])
    assert path.read_bytes() == CONTENT
    pack_beside(files, [path])
    remove_plain(files, [path])
    remove_packed(files, [path])
    assert read_transcript(files, path) == CONTENT


@pytest.mark.parametrize("damage", [b"", b"no zstd", "cut", "flip"])
def test_a_damaged_archive_says_so(tmp_path: Path, damage: bytes | str) -> None:
    files, path = OsFiles(), transcript(tmp_path)
    pack_beside(files, [path])
    remove_plain(files, [path])
    packed = packed_path(path)
    whole = packed.read_bytes()
    spoilt = {"cut": whole[:-3], "flip": whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:]}
    packed.write_bytes(damage if isinstance(damage, bytes) else spoilt[damage])
    with pytest.raises(StorageFailed, match="is damaged"):
        read_transcript(files, path)


def test_what_is_not_written_as_it_should_be_leaves_the_plain_one(tmp_path: Path) -> None:
    path = transcript(tmp_path)

    class Lying(OsFiles):
        def replace(self, path: Path, payload: bytes) -> None:
            super().replace(path, payload[:-4] + b"\0\0\0\0")

    with pytest.raises(StorageFailed):
        pack_beside(Lying(), [path])
    assert path.read_bytes() == CONTENT


def test_a_missing_transcript_is_missing(tmp_path: Path) -> None:
    assert transcript_size(OsFiles(), tmp_path / "X.1.jsonl") is None
    with pytest.raises(StorageMissing):
        read_transcript(OsFiles(), tmp_path / "X.1.jsonl")

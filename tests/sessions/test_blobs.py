"""Attachments on disk."""

from __future__ import annotations

import errno
import hashlib
import stat
from typing import TYPE_CHECKING

import pytest

from sessions.blobs import Blobs
from sessions.files import Crash, FaultyFiles, OsFiles, StorageError, StorageFailed, StorageFull, StorageMissing

if TYPE_CHECKING:
    from pathlib import Path


def test_the_same_bytes_are_stored_once_under_their_hash(tmp_path: Path) -> None:
    blobs = Blobs(OsFiles(), tmp_path)
    sha256 = blobs.put(b"picture")
    path = tmp_path / "blobs" / sha256[:2] / sha256
    assert sha256 == hashlib.sha256(b"picture").hexdigest()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.stat().st_ino
    assert blobs.put(b"picture") == sha256
    assert path.stat().st_ino == before
    assert blobs.load(sha256) == b"picture"


def test_bytes_go_with_the_last_session_that_refers_to_them(tmp_path: Path) -> None:
    blobs = Blobs(OsFiles(), tmp_path)
    sha256, other = blobs.put(b"picture"), blobs.put(b"letter")
    for session in ("one", "two"):
        blobs.refer(sha256, session)
    blobs.refer(other, "two")
    blobs.release(sha256, "one")
    assert blobs.load(sha256) == b"picture"
    blobs.release_all("two")
    for gone in (sha256, other):
        with pytest.raises(StorageMissing):
            blobs.load(gone)
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []


def test_damaged_bytes_are_never_handed_out_and_are_mended_by_the_next_upload(tmp_path: Path) -> None:
    blobs = Blobs(OsFiles(), tmp_path)
    sha256 = blobs.put(b"picture")
    (tmp_path / "blobs" / sha256[:2] / sha256).write_bytes(b"pict")
    with pytest.raises(StorageFailed, match="damaged"):
        blobs.load(sha256)
    blobs.put(b"picture")
    assert blobs.load(sha256) == b"picture"


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n", "a" * 63 + "/"])
def test_what_is_no_hash_names_no_file(tmp_path: Path, name: str) -> None:
    blobs = Blobs(OsFiles(), tmp_path)
    for act in (blobs.load, lambda sha256: blobs.refer(sha256, "one"), lambda sha256: blobs.release(sha256, "one")):
        with pytest.raises(StorageError):
            act(name)


def test_a_full_disk_leaves_nothing_and_a_crash_nothing_half(tmp_path: Path) -> None:
    files = FaultyFiles()
    blobs = Blobs(files, tmp_path)
    files.fail("write", errno.ENOSPC)
    with pytest.raises(StorageFull):
        blobs.put(b"picture")
    files.heal()
    for step in range(1, 100):
        files.crash_at(step)
        try:
            blobs.put(b"picture %d" % step)
        except Crash:
            files.crash_at(None)
            sha256 = hashlib.sha256(b"picture %d" % step).hexdigest()
            path = tmp_path / "blobs" / sha256[:2] / sha256
            assert not path.exists() or blobs.load(sha256)
            assert blobs.put(b"picture %d" % step) == sha256
        else:
            break

"""Transcripts packed with zstd: `<name>.jsonl.zst` beside, then in the place of, `<name>.jsonl`.

Where both are there, the plain one counts: packing leaves it until the packed one is checked, and unpacking writes it
whole. So a crash at any step loses nothing, and nothing is ever half an archive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessions.files import StorageFailed, StorageMissing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sessions.files import Files

SUFFIX = ".zst"
LEVEL = 9


def packed_path(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def read_transcript(files: Files, path: Path, offset: int = 0) -> bytes:
    """A transcript's bytes, whether it is packed or not. Raises StorageError.

    It looks twice: the file may be packed or unpacked at this very moment.
    """
    for _ in range(2):
        try:
            return files.read(path, offset)
        except StorageMissing:
            pass
        try:
            return unpacked(files, path)[offset:]
        except StorageMissing:
            pass
    return files.read(path, offset)


def transcript_size(files: Files, path: Path) -> int | None:
    """In bytes, unpacked; None when there is no such transcript."""
    size = files.size(path)
    if size is None and files.size(packed_path(path)) is not None:
        return len(read_transcript(files, path))
    return size


def unpacked(files: Files, path: Path) -> bytes:
    """What the packed form of a transcript holds; its checksum is looked at. Raises StorageError."""
    import zstandard

    packed = packed_path(path)
    try:
        return zstandard.ZstdDecompressor().decompress(files.read(packed))
    except zstandard.ZstdError as error:
        raise StorageFailed(f"{packed.name} is damaged ({error}). Restore it from a backup.") from error


def pack_beside(files: Files, paths: Sequence[Path]) -> None:
    """Writes the packed forms, and reads them back from the disk. The plain ones stay. Raises StorageError."""
    import zstandard

    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    for path in paths:
        if files.size(path) is None:
            continue
        content = files.read(path)
        files.replace(packed_path(path), compressor.compress(content))
        if unpacked(files, path) != content:
            files.remove(packed_path(path))
            raise StorageFailed(
                f"{path.name} could not be packed: what was written came back different. Check the disk."
            )


def unpack_beside(files: Files, paths: Sequence[Path]) -> None:
    """Writes the plain forms of what is only packed, the newest last. The packed ones stay. Raises StorageError."""
    for path in paths:
        if files.size(path) is None:
            files.replace(path, unpacked(files, path))


def remove_plain(files: Files, paths: Sequence[Path]) -> None:
    """Only where there is a packed form; the newest generation first: its form stands for all when the index is lost.

    Raises StorageError.
    """
    for path in reversed(paths):
        if files.size(packed_path(path)) is not None:
            files.remove(path)


def remove_packed(files: Files, paths: Sequence[Path]) -> None:
    """Only where there is a plain form. Raises StorageError."""
    for path in paths:
        if files.size(path) is not None:
            files.remove(packed_path(path))

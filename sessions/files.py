"""The file layer: the one place that touches the disk, so that its faults can be shown."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import orjson

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700


class StorageError(Exception):
    """Something could not be stored. `code` is stable; the message says what to do."""

    code = "storage_failed"


class StorageFull(StorageError):
    """The disk, or the quota, is full."""

    code = "storage_full"


class StorageFailed(StorageError):
    """The disk refused to write, read or sync."""


class ForeignWrite(StorageError):
    """A file is not as long as we left it: something else writes to it."""

    code = "foreign_write"


class AlreadyRunning(Exception):
    """Another daemon holds the data directory."""


def storage_error(error: OSError, path: Path) -> StorageError:
    """The StorageError an operating system's error means."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(
            f"The disk is full: {path.name} could not be written. Free some space; nothing else is needed."
        )
    if error.errno == errno.EROFS:
        return StorageFailed(f"The file system is read-only: {path.name} could not be written. Remount it writable.")
    return StorageFailed(
        f"{path.name} could not be read or written ({os.strerror(error.errno or errno.EIO)}). Check the disk."
    )


class Files(Protocol):
    """Blocking operations on files. All raise StorageError; none leaves a file half-written under its own name."""

    def append(self, path: Path, payload: bytes, *, expected_size: int, sync: bool) -> int:
        """Adds whole lines to a file that is `expected_size` bytes long; the new size. Raises ForeignWrite.

        After an error the file is as long as before, or its state is unknown until it is opened again.
        """
        ...

    def create(self, path: Path, payload: bytes, *, sync: bool) -> None:
        """A new file that appears whole or not at all."""
        ...

    def replace(self, path: Path, payload: bytes) -> None:
        """Like create, over a file that may exist."""
        ...

    def read(self, path: Path, offset: int = 0) -> bytes: ...
    def size(self, path: Path) -> int | None: ...
    def truncate(self, path: Path, size: int) -> None: ...
    def remove(self, path: Path) -> None: ...
    def list_sizes(self, folder: Path) -> dict[str, int]: ...
    def folders(self, root: Path) -> list[Path]: ...
    def make_folder(self, folder: Path) -> None: ...


class OsFiles:
    """Files of the operating system: 0600 in folders 0700."""

    def append(self, path: Path, payload: bytes, *, expected_size: int, sync: bool) -> int:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            size = os.fstat(descriptor).st_size
            if size != expected_size:
                raise ForeignWrite(
                    f"{path.name} has {size} bytes where {expected_size} were left. Stop whatever else writes to it."
                )
            try:
                self._write(descriptor, payload)
                if sync:
                    self.sync(descriptor)
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, expected_size)
                raise storage_error(error, path) from error
            return expected_size + len(payload)
        finally:
            os.close(descriptor)

    def _write(self, descriptor: int, payload: bytes) -> None:
        if os.write(descriptor, payload) != len(payload):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def create(self, path: Path, payload: bytes, *, sync: bool) -> None:
        self.make_folder(path.parent)
        self._publish(path, payload, sync=sync)

    def replace(self, path: Path, payload: bytes) -> None:
        self._publish(path, payload, sync=True)

    def _publish(self, path: Path, payload: bytes, *, sync: bool) -> None:
        temporary = path.with_name(f"{path.name}.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
            try:
                written = 0
                while written < len(payload):
                    written += os.write(descriptor, payload[written : written + (1 << 24)])
                if sync:
                    self.sync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(path)
            if sync:
                self._sync_folder(path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise storage_error(error, path) from error

    def _sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, path: Path, offset: int = 0) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(offset)
                return file.read()
        except OSError as error:
            raise storage_error(error, path) from error

    def size(self, path: Path) -> int | None:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error(error, path) from error

    def truncate(self, path: Path, size: int) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.ftruncate(descriptor, size)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_error(error, path) from error

    def remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
            self._sync_folder(path.parent)
        except OSError as error:
            raise storage_error(error, path) from error

    def list_sizes(self, folder: Path) -> dict[str, int]:
        try:
            with os.scandir(folder) as entries:
                return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in entries if entry.is_file()}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise storage_error(error, folder) from error

    def folders(self, root: Path) -> list[Path]:
        try:
            with os.scandir(root) as entries:
                return sorted(root / entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error(error, root) from error

    def make_folder(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, folder) from error


class Crash(BaseException):
    """The process ended here. Not an Exception, so that nothing on the way mends what a real crash would not."""


class FaultyFiles(OsFiles):
    """Files whose disk fails on demand, for showing what happens then.

    `fail` makes an operation (`write`, `sync`, `publish`, `remove`, `truncate`, `read`) raise an errno; `crash_at`
    raises Crash before the n-th step that changes the disk, counted from 1.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._crash_at: int | None = None
        self._faults: dict[str, tuple[int, int]] = {}

    def fail(self, operation: str, code: int, *, times: int = 1_000_000) -> None:
        self._faults[operation] = (code, times)

    def heal(self) -> None:
        self._faults.clear()

    def crash_at(self, step: int | None) -> None:
        self.steps, self._crash_at = 0, step

    def _step(self, operation: str) -> None:
        self.steps += 1
        if self.steps == self._crash_at:
            raise Crash(f"before step {self.steps}: {operation}")
        self._fault(operation)

    def _fault(self, operation: str) -> None:
        code, times = self._faults.get(operation, (0, 0))
        if times > 0:
            self._faults[operation] = (code, times - 1)
            raise OSError(code, os.strerror(code))

    def _write(self, descriptor: int, payload: bytes) -> None:
        self.steps += 1
        if self.steps == self._crash_at:
            os.write(descriptor, payload[: len(payload) // 2])
            raise Crash(f"in the middle of step {self.steps}: write")
        code, times = self._faults.get("write", (0, 0))
        if times > 0 and code == errno.ENOSPC:
            os.write(descriptor, payload[: len(payload) // 2])
        self._fault("write")
        super()._write(descriptor, payload)

    def sync(self, descriptor: int) -> None:
        self._step("sync")
        super().sync(descriptor)

    def _publish(self, path: Path, payload: bytes, *, sync: bool) -> None:
        try:
            self._step("publish")
        except OSError as error:
            raise storage_error(error, path) from error
        super()._publish(path, payload, sync=sync)

    def truncate(self, path: Path, size: int) -> None:
        try:
            self._step("truncate")
        except OSError as error:
            raise storage_error(error, path) from error
        super().truncate(path, size)

    def remove(self, path: Path) -> None:
        try:
            self._step("remove")
        except OSError as error:
            raise storage_error(error, path) from error
        super().remove(path)

    def read(self, path: Path, offset: int = 0) -> bytes:
        try:
            self._fault("read")
        except OSError as error:
            raise storage_error(error, path) from error
        return super().read(path, offset)


@dataclass(frozen=True, slots=True)
class DirectoryLock:
    """`<data_dir>/lock`, held while a daemon runs. The kernel frees it with the process, whatever the file says."""

    path: Path
    descriptor: int

    @staticmethod
    def acquire(path: Path, *, pid: int, boot_id: str, started_at: datetime) -> DirectoryLock:
        """Raises AlreadyRunning with the holder's pid."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 4096, 0)
            os.close(descriptor)
            raise AlreadyRunning(
                f"Another sessiond uses {path.parent} ({_holder(holder)}). Stop it, or choose another --data-dir."
            ) from error
        content = orjson.dumps({"pid": pid, "boot_id": boot_id, "started_at": started_at.isoformat()})
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content + b"\n", 0)
        return DirectoryLock(path, descriptor)

    def release(self) -> None:
        os.close(self.descriptor)


def _holder(content: bytes) -> str:
    try:
        return f"pid {orjson.loads(content)['pid']}"
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "pid unknown"

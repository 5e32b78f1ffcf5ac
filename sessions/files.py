"""The file layer: the one place that touches the disk, so that its faults can be shown."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import orjson

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import datetime

FILE_MODE = 0o600
FOLDER_MODE = 0o700
TEMPORARY = ".new"
"""Suffix of a file that is not whole yet. One left behind by a crash is overwritten by the next try, and never read."""

_WRITE = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_PIECE_BYTES = 1 << 24


class StorageError(Exception):
    """Something could not be stored or read. `code` is stable; the message says what to do."""

    code = "storage_failed"


class StorageFull(StorageError):
    """The disk, or the quota, is full."""

    code = "storage_full"


class StorageFailed(StorageError):
    """The disk refused to write, read or sync, or does not hold what it acknowledged."""


class StorageMissing(StorageError):
    """A file that should be there is not."""

    code = "storage_missing"


class ForeignWrite(StorageError):
    """A file is not as we left it: something else writes to it."""

    code = "foreign_write"


class AlreadyRunning(Exception):
    """Another daemon holds the data directory."""


def storage_error(error: OSError, path: Path) -> StorageError:
    """The StorageError an operating system's error means."""
    name = path.name
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StorageFull(f"The disk is full: {name} could not be written. Free some space; it goes on by itself.")
        case errno.EROFS:
            return StorageFailed(f"The file system is read-only: {name} could not be written. Remount it writable.")
        case errno.EACCES | errno.EPERM:
            return StorageFailed(f"{path} may not be opened by this user. Give it to the user that runs sessiond.")
        case errno.EMFILE | errno.ENFILE:
            return StorageFailed(f"Too many open files: {name} could not be opened. Raise the limit (ulimit -n).")
        case errno.ELOOP:
            return StorageFailed(f"{path} is a symbolic link. Put the file itself in its place.")
        case errno.ENOENT:
            return StorageMissing(f"{path} is not there. Restore it from a backup, or run sessiond repair.")
        case _:
            why = os.strerror(error.errno or errno.EIO)
            return StorageFailed(f"{name} could not be read or written ({why}). Check the disk.")


@contextlib.contextmanager
def _told(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error


class Files(Protocol):
    """Blocking operations on files: 0600, in folders 0700. All raise StorageError."""

    def append(self, path: Path, payload: bytes, *, expected_size: int, sync: bool) -> int:
        """Adds whole lines, with one write, to a file of `expected_size` bytes; the new size. Raises ForeignWrite.

        After an error nothing of it counts: look at the file again before the next append.
        """
        ...

    def create(self, path: Path, payload: bytes, *, sync: bool) -> None:
        """A new file, and its folders, that appears whole or not at all. Raises ForeignWrite when there is one."""
        ...

    def replace(self, path: Path, payload: bytes) -> None:
        """A synced file, and its folders, in the place of one that may exist: either is there, whole."""
        ...

    def read(self, path: Path, offset: int = 0) -> bytes:
        """Raises StorageMissing."""
        ...

    def size(self, path: Path) -> int | None:
        """In bytes; None when there is no such file."""
        ...

    def truncate(self, path: Path, size: int) -> None:
        """Cuts the file to `size` bytes, synced."""
        ...

    def remove(self, path: Path) -> None:
        """Removes the file, synced; nothing happens when it is not there."""
        ...

    def list_sizes(self, folder: Path) -> dict[str, int]:
        """Size in bytes by name of the files in one folder; empty when there is no such folder."""
        ...

    def names(self, folder: Path, prefix: str) -> list[str]:
        """What is in one folder and begins with `prefix`; of a folder with very many files much quicker than their
        sizes."""
        ...

    def folders(self, root: Path) -> list[Path]:
        """The folders in `root`, without links; empty when there is no such folder."""
        ...

    def make_folder(self, folder: Path) -> None:
        """The folder and those above it, as far as they are missing."""
        ...


class Disk:
    """The single steps a file operation consists of; each may raise OSError."""

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags, FILE_MODE)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def write(self, descriptor: int, payload: bytes | memoryview) -> int:
        return os.write(descriptor, payload)

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def make_folder(self, folder: Path) -> None:
        folder.mkdir(FOLDER_MODE, exist_ok=True)

    def read(self, path: Path, offset: int) -> bytes:
        with os.fdopen(os.open(path, _READ), "rb", buffering=0) as file:
            file.seek(offset)
            return file.readall()


class OsFiles:
    """Files of the operating system."""

    def __init__(self, disk: Disk | None = None) -> None:
        self._disk = disk or Disk()

    def append(self, path: Path, payload: bytes, *, expected_size: int, sync: bool) -> int:
        with _told(path), self._opened(path, _WRITE | os.O_APPEND) as descriptor:
            size = os.fstat(descriptor).st_size
            if size != expected_size:
                raise ForeignWrite(
                    f"{path.name} has {size} bytes where {expected_size} were left. Stop whatever else writes to it."
                )
            try:
                if self._disk.write(descriptor, payload) != len(payload):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if sync:
                    self._disk.sync(descriptor)
            except OSError:
                self._take_back(descriptor, expected_size)
                raise
            return expected_size + len(payload)

    def _take_back(self, descriptor: int, size: int) -> None:
        """Best effort: where this fails too, the next append finds a size it does not expect."""
        with contextlib.suppress(OSError):
            self._disk.truncate(descriptor, size)
            self._disk.sync(descriptor)

    @contextlib.contextmanager
    def _opened(self, path: Path, flags: int) -> Generator[int]:
        descriptor = self._disk.open(path, flags)
        try:
            yield descriptor
        finally:
            self._disk.close(descriptor)

    def create(self, path: Path, payload: bytes, *, sync: bool) -> None:
        self.make_folder(path.parent)
        if self.size(path) is not None:
            raise ForeignWrite(f"{path.name} is there already. Stop whatever else writes to {path.parent}.")
        self._write_new(path, payload, sync=sync)
        with _told(path):
            self._disk.rename(_temporary(path), path)
            if not sync:
                return
            try:
                self._disk.sync_folder(path.parent)
            except OSError:
                with contextlib.suppress(OSError):
                    self._disk.remove(path)
                raise

    def replace(self, path: Path, payload: bytes) -> None:
        self.make_folder(path.parent)
        self._write_new(path, payload, sync=True)
        with _told(path):
            self._disk.rename(_temporary(path), path)
            self._disk.sync_folder(path.parent)

    def _write_new(self, path: Path, payload: bytes, *, sync: bool) -> None:
        temporary = _temporary(path)
        with _told(path):
            self._disk.remove(temporary)
            try:
                with self._opened(temporary, _WRITE | os.O_CREAT | os.O_EXCL) as descriptor:
                    self._write_all(descriptor, payload)
                    if sync:
                        self._disk.sync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    self._disk.remove(temporary)
                raise

    def _write_all(self, descriptor: int, payload: bytes) -> None:
        view, written = memoryview(payload), 0
        while written < len(view):
            count = self._disk.write(descriptor, view[written : written + _PIECE_BYTES])
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += count

    def read(self, path: Path, offset: int = 0) -> bytes:
        with _told(path):
            return self._disk.read(path, offset)

    def size(self, path: Path) -> int | None:
        try:
            return path.lstat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error(error, path) from error

    def truncate(self, path: Path, size: int) -> None:
        with _told(path), self._opened(path, _WRITE) as descriptor:
            self._disk.truncate(descriptor, size)
            self._disk.sync(descriptor)

    def remove(self, path: Path) -> None:
        with _told(path):
            self._disk.remove(path)
            if path.parent.is_dir():
                self._disk.sync_folder(path.parent)

    def list_sizes(self, folder: Path) -> dict[str, int]:
        try:
            with os.scandir(folder) as found:
                files = (entry for entry in found if entry.is_file(follow_symlinks=False))
                return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in files}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise storage_error(error, folder) from error

    def names(self, folder: Path, prefix: str) -> list[str]:
        try:
            with os.scandir(folder) as found:
                return [entry.name for entry in found if entry.name.startswith(prefix)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error(error, folder) from error

    def folders(self, root: Path) -> list[Path]:
        try:
            with os.scandir(root) as found:
                return sorted(root / entry.name for entry in found if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error(error, root) from error

    def make_folder(self, folder: Path) -> None:
        with _told(folder):
            if folder.is_dir():
                return
        self.make_folder(folder.parent)
        with _told(folder):
            self._disk.make_folder(folder)
            self._disk.sync_folder(folder.parent)


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + TEMPORARY)


# --- faults on demand -------------------------------------------------------------------------------------------------

Step = Literal["open", "write", "sync", "sync_folder", "truncate", "rename", "remove", "make_folder", "read"]


class Crash(BaseException):
    """The process ended here. Not an Exception, so that nothing on the way mends what a real crash would not."""


@dataclass(slots=True)
class _Fault:
    step: Step
    code: int
    after: int
    times: int
    where: str


class _FaultyDisk(Disk):
    """A disk whose steps are counted, and fail or crash where it was told to."""

    def __init__(self) -> None:
        self.steps = 0
        self.crash_at: int | None = None
        self.crashed = False
        self.faults: list[_Fault] = []
        self._paths: dict[int, Path] = {}

    def _next(self, step: Step, path: Path) -> None:
        self._count(f"before {step} of {path.name}")
        self._fail(step, path)

    def _count(self, where: str) -> None:
        self.steps += 1
        if self.crashed or self.steps == self.crash_at:
            self.crashed = True
            raise Crash(f"step {self.steps}: {where}")

    def _fail(self, step: Step, path: Path) -> None:
        for fault in self.faults:
            if fault.step != step or fault.where not in str(path) or fault.times == 0:
                continue
            if fault.after > 0:
                fault.after -= 1
                continue
            fault.times -= 1
            raise OSError(fault.code, os.strerror(fault.code))

    def open(self, path: Path, flags: int) -> int:
        self._next("open", path)
        descriptor = super().open(path, flags)
        self._paths[descriptor] = path
        return descriptor

    def close(self, descriptor: int) -> None:
        self._paths.pop(descriptor, None)
        super().close(descriptor)

    def write(self, descriptor: int, payload: bytes | memoryview) -> int:
        """A full disk takes the first half, as real ones do; so does a crash in the middle of the write."""
        path, half = self._paths[descriptor], payload[: len(payload) // 2]
        self._count(f"before write to {path.name}")
        try:
            self._fail("write", path)
        except OSError as error:
            if error.errno == errno.ENOSPC and half:
                return super().write(descriptor, half)
            raise
        try:
            self._count(f"half-way in write to {path.name}")
        except Crash:
            super().write(descriptor, half)
            raise
        return super().write(descriptor, payload)

    def sync(self, descriptor: int) -> None:
        self._next("sync", self._paths[descriptor])
        super().sync(descriptor)

    def sync_folder(self, folder: Path) -> None:
        self._next("sync_folder", folder)
        super().sync_folder(folder)

    def truncate(self, descriptor: int, size: int) -> None:
        self._next("truncate", self._paths[descriptor])
        super().truncate(descriptor, size)

    def rename(self, source: Path, target: Path) -> None:
        self._next("rename", target)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._next("remove", path)
        super().remove(path)

    def make_folder(self, folder: Path) -> None:
        self._next("make_folder", folder)
        super().make_folder(folder)

    def read(self, path: Path, offset: int) -> bytes:
        if self.crashed:
            raise Crash(f"reading {path.name} after the crash")
        self._fail("read", path)
        return super().read(path, offset)


class FaultyFiles(OsFiles):
    """Real files whose disk fails on demand, for showing what happens then."""

    def __init__(self) -> None:
        self._faulty = _FaultyDisk()
        super().__init__(self._faulty)

    @property
    def steps(self) -> int:
        """Steps taken since the last `crash_at`; a write counts twice, because it can be cut half-way."""
        return self._faulty.steps

    def fail(self, step: Step, code: int, *, after: int = 0, times: int = 1_000_000_000, where: str = "") -> None:
        """The step fails with errno `code`, `times` times, once it went well `after` times; only for paths that
        contain `where`."""
        self._faulty.faults.append(_Fault(step, code, after, times, where))

    def heal(self) -> None:
        """From now on nothing fails any more."""
        self._faulty.faults.clear()

    def crash_at(self, step: int | None) -> None:
        """Counts anew, and raises Crash before the step of this number, counted from 1, and at all that follow."""
        self._faulty.steps, self._faulty.crash_at, self._faulty.crashed = 0, step, False


# --- the lock of a data directory -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DirectoryLock:
    """`<data_dir>/lock`, held while a daemon runs. The kernel frees it with the process, whatever the file says."""

    path: Path
    descriptor: int

    @staticmethod
    def acquire(path: Path, *, pid: int, boot_id: str, started_at: datetime) -> DirectoryLock:
        """Takes the lock, in a folder that is made if need be. Raises AlreadyRunning with the holder's pid, and
        StorageError. A file left by a dead process never blocks, also where its pid lives again."""
        OsFiles().make_folder(path.parent)
        with _told(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            _lock(descriptor, path)
            content = orjson.dumps({"pid": pid, "boot_id": boot_id, "started_at": started_at.isoformat()})
            with _told(path):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, content + b"\n", 0)
        except BaseException:
            os.close(descriptor)
            raise
        return DirectoryLock(path, descriptor)

    def release(self) -> None:
        """Frees the lock. The file stays: removing it would let two daemons hold a lock each."""
        os.close(self.descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise AlreadyRunning(
            f"Another sessiond uses {path.parent} ({_holder(os.pread(descriptor, 4096, 0))}). "
            "Stop it, or choose another --data-dir."
        ) from error
    except OSError as error:
        raise StorageFailed(
            f"{path.parent} is on a file system without locks ({error.strerror}). Choose a local --data-dir."
        ) from error


def _holder(content: bytes) -> str:
    try:
        return f"pid {orjson.loads(content)['pid']}"
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "pid unknown"


def load_boot_id() -> str:
    """What tells one start of the machine from another; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""

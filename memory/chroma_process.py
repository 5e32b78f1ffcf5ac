"""Processes for Chroma, one for each index: what it writes holds Python's own lock until it is on the disk, and nobody
would be answered meanwhile (measured with chromadb 1.5.9: 30 to 90 ms for one vector, half a second for 500)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from memory.chroma_store import ChromaStore
from memory.index import IndexAway, IndexBroken, IndexNotOpen

START_S = 60.0
STOP_S = 5.0


class ChromaProcess:
    """The daemon's end of one process. It starts with the first question, and again when it has ended in between. All
    but `kill` is for one thread, and blocks."""

    def __init__(self, folder: Path, url: str | None, prefix: str) -> None:
        self._told = (folder, url, prefix)
        self._connection: Connection | None = None
        self.pid: int | None = None

    def ask(self, name: str, values: tuple[Any, ...]) -> Any:
        """What a method of ChromaStore answers. Raises IndexBroken."""
        try:
            connection = self._connection or self._start()
        except (EOFError, OSError) as error:
            self._forget()
            raise IndexAway("The process of the vector index could not be started; the log says why.") from error
        try:
            connection.send((name, values))
            answer = connection.recv()
        except (EOFError, OSError) as error:
            self._forget()
            raise IndexNotOpen("The process of the vector index has ended; it is opened again.") from error
        if isinstance(answer, IndexBroken):
            raise answer
        return answer

    def _start(self) -> Connection:
        self._connection = _breeder.connect()
        self._connection.send(self._told)
        if not self._connection.poll(START_S):
            _breeder.kill()
            raise EOFError  # what was forked already may stand still for ever; it ends when it wakes
        started = self._connection.recv()
        if isinstance(started, IndexAway):
            self._forget()
            raise started
        self.pid = started
        return self._connection

    def stop(self) -> None:
        """Returns when it has closed Chroma, and ended."""
        if self._connection is not None:
            with contextlib.suppress(EOFError, OSError):
                self._connection.send(None)
                if not self._connection.poll(STOP_S):
                    self.kill()
                self._connection.recv()
        self._forget()

    def _forget(self) -> None:
        connection, self._connection, self.pid = self._connection, None, None
        if connection is not None:
            connection.close()

    def kill(self) -> None:
        """From any thread; whoever waits for an answer is told that it has ended."""
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        elif self._connection is not None:  # it is being started
            _breeder.kill()


class Breeder:
    """The daemon's end of `main`: a process that has loaded Chroma, which takes seconds, and forks one for each index.
    It starts when it is first needed, and ends with the daemon."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def connect(self) -> Connection:
        """The daemon's end of a new process. Raises OSError."""
        ours, theirs = socket.socketpair()
        with ours, theirs, self._guard:
            try:
                socket.send_fds(self._socket or self._start(), [b"."], [theirs.fileno()])
            except OSError:  # it has ended, however that came
                socket.send_fds(self._start(), [b"."], [theirs.fileno()])
            return Connection(ours.detach())

    def _start(self) -> socket.socket:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  (our own module)
                [sys.executable, "-P", "-m", __name__],  # -P: whatever the current folder may hold
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is the daemon's affair, also while it imports
                env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},  # what forks has one thread
            )
        return self._socket

    def kill(self) -> None:
        """From any thread; the next index begins another: this one takes questions until it is gone."""
        self._socket = None
        if self._process is not None:
            self._process.kill()


_breeder = Breeder()


def main() -> None:
    """Forks until the daemon closes its end; when the daemon was killed the system does that. Signals are the daemon's
    affair: Ctrl-C reaches all of them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    missing = _load()
    with socket.socket(fileno=0) as asked:
        while handed := socket.recv_fds(asked, 1, 1)[1]:
            if missing is not None:
                with contextlib.suppress(EOFError, OSError), Connection(handed[0]) as connection:
                    connection.recv()
                    connection.send(missing)
            elif os.fork() == 0:
                asked.close()
                _serve(Connection(handed[0]))
                return
            else:
                os.close(handed[0])


def _load() -> IndexAway | None:
    """Why Chroma cannot be loaded; that is found out once, since it takes seconds."""
    try:
        import chromadb  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except Exception as error:
        return IndexAway(
            f"Chroma cannot be loaded ({type(error).__name__}: {error}). Install sessiond anew, then start it again."
        )
    return None


def _serve(connection: Connection) -> None:
    """Answers until it is told to stop, or the daemon is no more."""
    with contextlib.suppress(EOFError, OSError):
        folder, url, prefix = connection.recv()
        connection.send(os.getpid())
        with contextlib.closing(ChromaStore(folder, url, prefix)) as store:
            while question := connection.recv():
                connection.send(_answered(store, *question))


def _answered(store: ChromaStore, name: str, values: tuple[Any, ...]) -> Any:
    """Damaged files make Chroma raise anything, also panics of its Rust side, which are no Exception."""
    try:
        return getattr(store, name)(*values)
    except IndexBroken as error:
        return error
    except BaseException as error:
        return IndexBroken(f"The vector index cannot be used ({type(error).__name__}: {str(error)[:200]}).")


if __name__ == "__main__":
    main()

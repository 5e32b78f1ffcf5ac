"""Transcript files: cut anywhere, failing anywhere, nothing acknowledged is lost."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.entries import Entry, Header
from sessions.files import Crash, FaultyFiles, ForeignWrite, OsFiles, Step, StorageError, StorageFailed, StorageMissing
from sessions.lines import scan
from sessions.transcript import Transcript, agent_folder, transcript_path
from tests.sessions.builders import AT, SESSION, user

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER = Header(session=SESSION, generation=1, key="agent:main:main", agent="main", at=AT)


def new(folder: Path, *, files: OsFiles | None = None, sync: bool = True) -> Transcript:
    return Transcript.create(files or OsFiles(), folder / "agent" / "t.jsonl", HEADER, sync=sync)


def reopened(transcript: Transcript) -> list[Entry]:
    """The entries, after a restart that found nothing to complain of."""
    _, found = Transcript.open(OsFiles(), transcript.path, stamp="never", sync=True)
    assert found.problems == ()
    assert found.header == HEADER
    return list(found.entries)


def beside(transcript: Transcript) -> dict[str, bytes]:
    """The other files in its folder, and below."""
    found = transcript.path.parent.rglob("*")
    return {p.name: p.read_bytes() for p in found if p.is_file() and p != transcript.path}


def test_nothing_is_on_disk_before_the_first_entry(tmp_path: Path) -> None:
    transcript = new(tmp_path)
    assert not transcript.path.parent.exists()
    transcript.append([user("a", 1), user("b", 2)])
    transcript.append([user("c", 3)])
    assert transcript.size == transcript.path.stat().st_size
    assert reopened(transcript) == [user("a", 1), user("b", 2), user("c", 3)]
    assert beside(transcript) == {}


def test_a_transcript_cut_at_every_byte_of_its_last_two_lines_takes_the_next_append(tmp_path: Path) -> None:
    written: Sequence[Entry] = [user("one", 1), user("žluťoučký", 2)]
    transcript = new(tmp_path)
    transcript.append(written)
    payload = transcript.path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(payload) if byte == 0x0A]
    assert len(ends) == 3
    for cut in range(len(payload) + 1):
        path = tmp_path / str(cut) / "t.jsonl"
        path.parent.mkdir()
        path.write_bytes(payload[:cut])
        opened, found = Transcript.open(OsFiles(), path, stamp="S", sync=False, header=HEADER)
        whole = max(0, sum(end - 1 <= cut for end in ends) - 1)
        assert list(found.entries) == written[:whole]
        torn = beside(opened)
        assert b"".join(torn.values()) == found.torn
        assert set(torn) <= {"t.jsonl.torn-S"}
        opened.append([user("next", whole + 1)])
        assert reopened(opened) == [*written[:whole], user("next", whole + 1)]
        assert opened.size == path.stat().st_size


def test_opening_changes_nothing_but_a_torn_tail(tmp_path: Path) -> None:
    transcript = new(tmp_path)
    transcript.append([user("a", 1), user("b", 2)])
    odd = b"\xef\xbb\xbf" + transcript.path.read_bytes().replace(b'"a"', b'"x"') + b"\0\0\nnoise\r\n"
    transcript.path.write_bytes(odd)
    opened, found = Transcript.open(OsFiles(), transcript.path, stamp="S", sync=True)
    assert found.problems
    assert transcript.path.read_bytes() == odd
    opened.append([user("c", 3)])
    assert transcript.path.read_bytes().startswith(odd)
    assert beside(transcript) == {}


FAULTS: list[tuple[Step, int]] = [
    ("open", errno.EMFILE),
    ("open", errno.EROFS),
    ("write", errno.ENOSPC),
    ("write", errno.EIO),
    ("sync", errno.EIO),
    ("sync", errno.ENOSPC),
]


@pytest.mark.parametrize("taken_back", [True, False])
@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize(("step", "code"), FAULTS)
def test_a_fault_loses_nothing_acknowledged_and_heals_with_the_disk(
    tmp_path: Path, step: Step, code: int, existing: bool, taken_back: bool
) -> None:
    files = FaultyFiles()
    transcript = new(tmp_path, files=files)
    kept: list[Entry] = []
    if existing:
        kept.append(user("kept", 1))
        transcript.append(kept)
    size = transcript.size
    files.fail(step, code)
    if not taken_back:
        files.fail("truncate", errno.EIO)
    for _ in range(3):
        with pytest.raises(StorageError):
            transcript.append([user("refused", 2)])
        assert transcript.size == size
    files.heal()
    transcript.append([user("after", len(kept) + 1)])
    assert reopened(transcript) == [*kept, user("after", len(kept) + 1)]


def test_a_new_file_whose_folder_could_not_be_synced_does_not_stay(tmp_path: Path) -> None:
    files = FaultyFiles()
    transcript = new(tmp_path, files=files)
    files.fail("sync_folder", errno.EIO, after=1)
    files.fail("remove", errno.EIO, after=1)
    with pytest.raises(StorageFailed):
        transcript.append([user("refused", 1)])
    assert transcript.path.exists()
    files.heal()
    transcript.append([user("after", 1)])
    assert reopened(transcript) == [user("after", 1)]
    assert b"refused" in b"".join(beside(transcript).values())


def test_a_crash_at_every_step_keeps_what_was_acknowledged_before_it(tmp_path: Path) -> None:
    outcomes: set[tuple[int, int]] = set()
    for step in range(1, 100):
        files = FaultyFiles()
        transcript = new(tmp_path / str(step), files=files)
        acknowledged: list[Entry] = []
        files.crash_at(step)
        try:
            for entry in (user("one", 1), user("two", 2)):
                transcript.append([entry])
                acknowledged.append(entry)
        except Crash:
            if transcript.path.exists():
                _, found = Transcript.open(OsFiles(), transcript.path, stamp="S", sync=True)
                assert list(found.entries)[: len(acknowledged)] == acknowledged
                outcomes.add((len(acknowledged), len(found.entries)))
                reopened(transcript)
            else:
                assert acknowledged == []
                outcomes.add((0, 0))
        else:
            break
    assert outcomes == {(0, 0), (0, 1), (1, 1), (1, 2)}


@pytest.mark.parametrize("cut_steps", range(1, 12))
def test_a_crash_while_a_torn_tail_is_cut_keeps_its_bytes(tmp_path: Path, cut_steps: int) -> None:
    transcript = new(tmp_path)
    transcript.append([user("one", 1)])
    whole = transcript.path.read_bytes()
    transcript.path.write_bytes(whole + b'{"seq":2,"te')
    files = FaultyFiles()
    files.crash_at(cut_steps)
    try:
        Transcript.open(files, transcript.path, stamp="S", sync=True)
    except Crash:
        Transcript.open(OsFiles(), transcript.path, stamp="T", sync=True)
    assert transcript.path.read_bytes() == whole
    assert b'{"seq":2,"te' in beside(transcript).values()


def test_what_another_writer_added_is_refused_then_set_aside(tmp_path: Path) -> None:
    transcript = new(tmp_path)
    transcript.append([user("one", 1)])
    with transcript.path.open("ab") as file:
        file.write(b"foreign\n")
    with pytest.raises(ForeignWrite):
        transcript.append([user("two", 2)])
    transcript.append([user("two", 2)])
    assert reopened(transcript) == [user("one", 1), user("two", 2)]
    assert list(beside(transcript).values()) == [b"foreign\n"]


@pytest.mark.parametrize("spoilt", ["shorter", "changed"])
def test_a_file_that_lost_or_changed_acknowledged_bytes_takes_no_more(tmp_path: Path, spoilt: str) -> None:
    files = FaultyFiles()
    transcript = new(tmp_path, files=files)
    transcript.append([user("one", 1)])
    files.fail("sync", errno.EIO, times=1)
    with pytest.raises(StorageFailed):
        transcript.append([user("refused", 2)])
    content = transcript.path.read_bytes()
    transcript.path.write_bytes(content[:-5] if spoilt == "shorter" else content.replace(b"one", b"two"))
    with pytest.raises(StorageFailed, match="no longer holds"):
        transcript.append([user("refused", 2)])


def test_a_missing_transcript_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageMissing):
        Transcript.open(OsFiles(), tmp_path / "t.jsonl", stamp="S", sync=True)


def test_without_syncing_no_sync_is_made(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.fail("sync", errno.EIO)
    transcript = new(tmp_path, files=files, sync=False)
    transcript.append([user("one", 1)])
    transcript.append([user("two", 2)])
    assert len(scan(transcript.path.read_bytes()).entries) == 2


@given(st.text(min_size=1, max_size=300).filter(lambda text: text.isprintable()))
def test_no_agent_name_leaves_its_folder(agent: str) -> None:
    folder = agent_folder(agent)
    assert Path("/d", folder).resolve().parent == Path("/d")
    assert len(folder.encode()) <= 100
    assert folder.isascii()


def test_different_agents_have_different_folders() -> None:
    long = "a" * 200
    names = [
        "main",
        "Main",
        ".",
        "..",
        "%2E",
        "a.b",
        "a%2Eb",
        "con",
        "%63on",
        long,
        long + "a",
        agent_folder(long),
        "ž",
    ]
    assert len({agent_folder(name) for name in names}) == len(names)
    assert agent_folder("main") == "main"
    assert agent_folder("..") == "%2E%2E"


@pytest.mark.parametrize(
    ("agent", "session", "generation"),
    [("main", "../x", 1), ("main", "a/b", 1), ("main", "", 1), ("main", "a\0", 1), ("", "a", 1), ("main", "a", 0)],
)
def test_what_is_no_session_id_makes_no_path(agent: str, session: str, generation: int) -> None:
    with pytest.raises(ValueError, match="no transcript"):
        transcript_path(Path("/d"), agent, session, generation)

"""Files of every format ever written still open."""

from __future__ import annotations

import shutil
from pathlib import Path

from sessions.entries import Header
from sessions.files import OsFiles
from sessions.index import JOURNAL, SNAPSHOT, Index
from sessions.lines import scan
from tests.sessions.builders import AT, SESSION, one_of_each

FORMAT_1 = Path(__file__).parent.parent / "data" / "format1"


def test_a_transcript_of_format_1_reads_back() -> None:
    found = scan((FORMAT_1 / "transcript.jsonl").read_bytes())
    assert found.header == Header(session=SESSION, generation=1, key="agent:main:main", agent="main", at=AT)
    assert list(found.entries) == one_of_each()
    assert found.problems == ()


def test_an_index_of_format_1_reads_back(tmp_path: Path) -> None:
    for name in (SNAPSHOT, JOURNAL):
        shutil.copy(FORMAT_1 / name, tmp_path / name)
    index, report = Index.load(OsFiles(), tmp_path, stamp="S")
    assert (report.records, report.edited, report.damaged_lines, report.broken) == (2, False, 0, None)
    main, group = index.active("agent:main:main"), index.active('agent:main:chat:group:"ž","x\\')
    assert main is not None
    assert group is not None
    assert (main.title, main.state, group.type) == ("changed", "active", "group")

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.explainer import Cause
from compaction.fingerprints import Mark, Outline, Section
from gateway.calls import LastCall, is_estimate

counts = st.integers(0, 2**53)
digests = st.integers(0, 2**64 - 1)
marks = st.builds(Mark, counts, digests, counts)
calls = st.builds(
    LastCall,
    at=st.integers(0, 2**41).map(lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)),
    model=st.text(max_size=9),
    generation=counts,
    outline=st.builds(Outline, tools=marks, system=marks, summary=marks, history=marks, messages=counts),
    base=digests,
    input_tokens=counts,
    reply_tokens=counts,
    counted=counts,
    reported=st.booleans(),
    cached=counts,
    written=counts,
    shared_tokens=counts,
    cause=st.none() | st.sampled_from(get_args(Cause)),
    section=st.none() | st.sampled_from(get_args(Section)),
    byte=st.none() | counts,
)


@given(calls)
def test_a_call_survives_its_session_record_and_takes_little_room_in_it(call: LastCall) -> None:
    written = orjson.loads(orjson.dumps(call.to_json()))
    assert LastCall.from_json(written) == call
    assert is_estimate(written) == (not call.reported)
    assert len(orjson.dumps(written)) < 500


@given(calls, st.integers(0, 14), st.sampled_from([None, "x", [], {}, -1.5, [[1]], True]))
def test_a_damaged_call_is_refused_or_read(call: LastCall, place: int, what: Any) -> None:
    written: list[Any] = call.to_json()
    written[place] = what
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        LastCall.from_json(written)
    for cut in range(len(written)):
        with pytest.raises((ValueError, TypeError)):
            LastCall.from_json(written[:cut])

"""The tables of jobs, runs, calls and deliveries in `state.db`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text

metadata = MetaData()

jobs_table = Table(
    "jobs",
    metadata,
    Column("id", String(26), primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("body", Text, nullable=False, comment="the job as JSON, with the secrets of its delivery"),
)

runs_table = Table(
    "job_runs",
    metadata,
    Column("id", String(26), primary_key=True, comment="a ULID: later runs have larger ones"),
    Column("kind", String(8), nullable=False, comment="job or hook"),
    Column("owner", String(64), nullable=False, comment="the job's id, or the webhook's name"),
    Column("status", String(16), nullable=False),
    Column("ended", BigInteger, comment="milliseconds since 1970, UTC"),
    Column("own_session", Integer, nullable=False, comment="1: a session goes when its time is over"),
    Column("body", Text, nullable=False, comment="the run as JSON"),
    Index("job_runs_owner", "kind", "owner", "id"),
    Index("job_runs_status", "status"),
    Index("job_runs_sessions", "own_session", "ended"),
)

calls_table = Table(
    "hook_calls",
    metadata,
    Column("hook", String(64), primary_key=True),
    Column("kind", String(32), primary_key=True, comment="the header that named it"),
    Column("value", String(64), primary_key=True, comment="SHA-256 of what it said"),
    Column("run", String(26), nullable=False),
)

deliveries_table = Table(
    "deliveries",
    metadata,
    Column("id", String(26), primary_key=True, comment="a ULID: the order of a line"),
    Column("line", String(64), nullable=False, comment="SHA-256 of session key and target: what is sent in order"),
    Column("status", String(16), nullable=False),
    Column("next", BigInteger, nullable=False, comment="milliseconds since 1970, UTC"),
    Column("run", String(26)),
    Column("body", Text, nullable=False, comment="the delivery as JSON, with the secrets of its target"),
    Index("deliveries_line", "status", "line", "id"),
    Index("deliveries_run", "run"),
)

marks_table = Table(
    "delivery_marks",
    metadata,
    Column("session", String(26), primary_key=True),
    Column("seq", BigInteger, nullable=False, comment="replies up to here are in the outbox"),
)

follows_table = Table(
    "delivery_follows",
    metadata,
    Column("prefix", Text, primary_key=True, comment="one of deliver.sessions"),
    Column("since", BigInteger, nullable=False, comment="replies from then on are sent; milliseconds since 1970, UTC"),
)

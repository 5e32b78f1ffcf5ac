"""What a daemon imports and reads at its start, for the process from which those of `forked` are forked."""

from __future__ import annotations

import tempfile
from pathlib import Path

import alembic.command  # noqa: F401
import openai  # noqa: F401
import uvloop  # noqa: F401

import gateway.daemon
import gateway.jobs.tables
import gateway.memory_opening  # noqa: F401
import tests.crash.forked  # noqa: F401
from gateway.models.tokens import load

with tempfile.TemporaryDirectory() as folder:
    load(Path(folder))

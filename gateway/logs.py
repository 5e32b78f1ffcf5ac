"""The log: structured events on standard error, with secrets and texts kept out by those who write them."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import structlog

from gateway.masking import masked, masked_within

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger

    from gateway.config import LoggingPolicy


def configure_logging(policy: LoggingPolicy, *, terminal: bool) -> None:
    """Once, at the start of the process."""
    level = logging.getLevelNamesMapping()[policy.level.upper()]
    readable = policy.format == "console" or (policy.format == "auto" and terminal)
    renderer = (
        structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=structlog.dev.plain_traceback)
        if readable
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            without_passwords,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    foreign = logging.StreamHandler(sys.stderr)
    foreign.setFormatter(_Foreign(logging.BASIC_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[foreign])


def without_passwords(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Whoever logs an error need not know that an address in it holds a password."""
    return masked_within(event)


class _Foreign(logging.Formatter):
    """What libraries log."""

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))

"""What PostgreSQL needs said and SQLite does not: how its connections are made, lost and told apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.engine import URL

CHANNEL = "crcr_work"
#: By what name our sessions are known to the server.
OURS = "crcr"
_ANNOUNCED = "crcr_announced"

#: Taken first by each transaction that writes, in whichever process. Our units lock rows of several tables, in the
#: order in which callers came; two groups of them would meet crosswise, and a deadlock costs a second before it is
#: noticed. So all replicas take turns, as SQLite's writers do. Readers wait for nobody.
TAKE_TURN = "SELECT pg_advisory_xact_lock(1129464663)"

#: A process that stopped in the middle of its turn must not stop the others, so the server ends its session after so
#: many milliseconds; and nobody waits longer than that for a turn, in milliseconds too.
_MOST_IDLE = 8_000
_MOST_WAIT = 9_000

#: PostgreSQL's code for "I only read". After a fail-over it is what the old primary, or a standby, answers to a write.
READ_ONLY = "25006"

# How soon a server that vanished without a word is noticed. A fail-over often takes the machine away together with
# its answers, and the kernel alone would wait for a quarter of an hour.
_VANISHED = {
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # Milliseconds, as libpq counts here.
}


_WRITING = (
    "-c default_transaction_read_only=off"
    f" -c idle_in_transaction_session_timeout={_MOST_IDLE} -c lock_timeout={_MOST_WAIT}"
)


def open_engine(url: URL, *, read_only: bool, wait_seconds: int) -> Engine:
    """An engine whose connections end when the server behind them is gone, or does not take our writes any more."""
    engine = create_engine(
        url,
        pool_pre_ping=True,
        hide_parameters=True,
        pool_size=8 if read_only else 2,
        max_overflow=0,
        pool_timeout=wait_seconds,
        connect_args={
            **_unless_said(url),
            "connect_timeout": wait_seconds,
            "options": "-c default_transaction_read_only=on" if read_only else _WRITING,
        },
    )
    if not read_only:
        usual = engine.dialect.is_disconnect

        def is_disconnect(error: Any, connection: Any, cursor: Any) -> bool:
            # A server that only reads answers each question and keeps nothing. To throw the connection away is what
            # leads to the new primary. Not by an event: with one listener, each statement would look for all others.
            return getattr(error, "sqlstate", None) == READ_ONLY or usual(error, connection, cursor)

        engine.dialect.is_disconnect = is_disconnect  # type: ignore[assignment, method-assign]
    return engine


def enter_by(engine: Engine, login: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    """Let each new connection be made as ``login`` says, which is given what the driver would be called with.

    It bears our name and no other that the URL gives: by it ``crcr db restore`` sees that somebody is there.
    """
    usual = engine.dialect.connect

    def connect(*arguments: Any, **named: Any) -> Any:
        return usual(*arguments, **{**login(named), "application_name": OURS})

    # Not by an event: with one listener, each statement would look for listeners of all others.
    engine.dialect.connect = connect  # type: ignore[method-assign]


def connect_arguments(engine: Engine, wait_seconds: int) -> tuple[Sequence[Any], dict[str, Any]]:
    """What the driver is called with, for a connection beside the engine's."""
    arguments, named = engine.dialect.create_connect_args(engine.url)
    return arguments, {**_unless_said(engine.url), **named, "connect_timeout": wait_seconds}


def announce(conn: Connection) -> None:
    """There is new work: let other processes know once this transaction is committed, and not before.

    However often it is called in one transaction, or in a group of them, one notice goes out.
    """
    conn.info[_ANNOUNCED] = True


def announced(conn: Connection) -> bool:
    """Whether ``announce`` was called on this connection; asking takes it back."""
    return bool(conn.info.pop(_ANNOUNCED, False))


def notice(sender: str) -> str:
    """The statement that tells the others. ``sender`` is letters and digits, by which each knows its own."""
    return f"NOTIFY {CHANNEL}, '{sender}'"


def _unless_said(url: URL) -> dict[str, int]:
    return {name: value for name, value in _VANISHED.items() if name not in url.query}

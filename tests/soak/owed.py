"""What the relay still owes, by kind: to know when to stop waiting, and for the progress. Nothing is judged by it."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from relay.store.engine import make_engine

#: Looks at runs that are long due again when the play is over. They are no promise.
LATER = "observe"


class Owed:
    """Looks into the relay's database from outside."""

    def __init__(self, database_url: str) -> None:
        self._engine = make_engine(database_url)

    def by_kind(self) -> Mapping[str, int] | None:
        """Effects that are not done, by kind; None where the database does not answer."""
        asked = text("SELECT kind, count(*) FROM effect WHERE state IN ('ready', 'running') GROUP BY kind")
        try:
            with self._engine.connect() as conn:
                return {str(kind): int(count) for kind, count in conn.execute(asked) if kind != LATER}
        except SQLAlchemyError:
            return None

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

"""What the relay still owes, by kind, as its database has it: to know when to stop waiting.

Nothing is judged by it, and the relay's own process does nothing for it, which would count as its work.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from relay.store.engine import make_engine

#: Looks at runs, which are due long after all else is done. They are no promise.
LATER = "observe"


class Owed:
    """Looks into the relay's database from outside."""

    def __init__(self, database_url: str) -> None:
        self._engine = make_engine(database_url)

    def by_kind(self, *, later: bool = False) -> Mapping[str, int] | None:
        """Effects that are not done, by kind, without those for ``LATER``; None where the database does not answer."""
        asked = text("SELECT kind, count(*) FROM effect WHERE state IN ('ready', 'running') GROUP BY kind")
        try:
            with self._engine.connect() as conn:
                return {str(kind): int(count) for kind, count in conn.execute(asked) if later or kind != LATER}
        except SQLAlchemyError:
            return None

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

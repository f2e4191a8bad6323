"""Bringing a retry forward because there is something new to show: what is newer waits behind it in its lane."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, and_, bindparam, case, update

from relay.store.candidates import IS_OPEN
from relay.store.tables import Effect

_effect = Effect.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.

#: A failed try is not repeated sooner, since what it asked for may still take effect (``relay.work.schedule.UNSURE``);
#: and however much is new, who fails is asked no more often.
AGAIN = timedelta(seconds=10)

_TIME = _effect.c.due.type
_SOON = bindparam("soon", type_=_TIME)
_SOONER = (
    update(_effect)
    .where(
        _effect.c.lane.in_(bindparam("lanes", expanding=True)),
        IS_OPEN,
        and_(_effect.c.state == "ready", _effect.c.failures > 0, _effect.c.due > _SOON),
    )
    .values(due=case((_effect.c.not_before > _SOON, _effect.c.not_before), else_=_SOON))
)


def sooner(conn: Connection, lanes: Sequence[str], now: datetime) -> None:
    """Let what failed in these lanes be tried again soon, and never before a time that GitHub named.

    Whether its account and its circuit let it go is decided when it is claimed, as for anything that is due.
    """
    if lanes:
        conn.execute(_SOONER, {"lanes": list(lanes), "soon": now + AGAIN})

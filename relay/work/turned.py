"""What the log is told of circuits that opened or closed."""

from __future__ import annotations

import structlog

from relay.deciding.circuits import State
from relay.store.circuits import Turned

log = structlog.get_logger(__name__)


def tell_log(turned: Turned) -> None:
    """Tell the log of a circuit that opened or closed; that failures are being counted is nobody's news."""
    shut = (State.OPEN, State.OFF)
    said = {"circuit": turned.key, "since": turned.since, "reason": turned.reason, "detail": turned.detail}
    if turned.after in shut:
        log.warning("circuit_off" if turned.after is State.OFF else "circuit_open", **said)
    elif turned.before in shut:
        log.info("circuit_closed", **said)

"""A dashboard of another party that takes each report, as the relay's optional sink."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from relay.simulator.exchange import Answer, Call, Refused, Route
from relay.simulator.model import Json

if TYPE_CHECKING:
    from relay.simulator.world import World

#: The key that the relay must show, unless a scenario sets another.
DEFAULT_KEY = "hud-key-of-the-simulator"


@dataclass(frozen=True)
class HudRow:
    """One accepted report."""

    at: datetime
    body: Json


class Hud:
    """The rows that were accepted. ``url`` (the relay's ``HUD_API_URL``) is the simulator's own plus ``/hud``."""

    def __init__(self) -> None:
        self.key = DEFAULT_KEY
        self.rows: list[HudRow] = []


def _results(world: World, call: Call) -> Answer:
    shown = call.headers.get("x-hud-internal-bot", "")
    if not hmac.compare_digest(shown.encode(), world.hud.key.encode()):
        raise Refused(401, "x-hud-internal-bot is missing or wrong")
    body = call.mapping()
    if not isinstance(body.get("trusted"), dict) or not isinstance(body.get("untrusted"), dict):
        raise Refused(400, "trusted and untrusted must be objects")
    world.hud.rows.append(HudRow(world.now(), body))
    return Answer(200, {"ok": True}, effect=True)


ROUTES = [Route("POST", "/hud/crcr/results", _results, caller="outside")]

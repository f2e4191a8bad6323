"""What the relay shows of its gaps, to people and to Prometheus."""

from __future__ import annotations

import urllib.request

from relay.deciding.gaps import Cause
from tests.stories.world import World


def shown(world: World, path: str) -> str:
    """A page of the relay's as text."""
    with urllib.request.urlopen(f"{world.url}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def by_cause(world: World, name: str) -> dict[str, float]:
    """What the relay's metric of gaps says of each cause that it counted any of."""
    lines = [line for line in shown(world, "/metrics").splitlines() if line.startswith(f"{name}{{")]
    found = {line.split('"')[1]: float(line.split()[1]) for line in lines}
    assert set(Cause) == found.keys()
    return {cause: count for cause, count in found.items() if count}

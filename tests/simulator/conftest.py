"""What the simulator's tests share: a running simulator with an app, and those who talk to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relay.simulator import App, Simulator
from tests.simulator.scene import Caller, Clock, Receiver


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sim(clock: Clock) -> Iterator[Simulator]:
    with Simulator(now=clock.now) as running:
        yield running


@pytest.fixture
def app(sim: Simulator) -> App:
    return sim.create_app()


@pytest.fixture
def caller(sim: Simulator, app: App, clock: Clock) -> Iterator[Caller]:
    made = Caller(sim, app, clock)
    yield made
    made.http.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()

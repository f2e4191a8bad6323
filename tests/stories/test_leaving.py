"""How a process goes when it is told to: it takes its leave, and who cannot wait for that tells it twice."""

from __future__ import annotations

import signal

from tests.stories.relay_process import RelayProcess
from tests.stories.test_replicas import readiness
from tests.stories.world import World


def test_a_second_signal_ends_a_process_at_once(world: World) -> None:
    """It would go on answering for a while: nobody need send SIGKILL, which a service manager would call a failure."""
    process = RelayProcess(world, world.folder / "relay.log", drain_seconds=120)
    try:
        process.wait_until_ready()
        process.terminate()
        world.settled(lambda: readiness(process.url)[0] == 503, "a process that leaves")
        process.terminate()
        status = process.stop()
    finally:
        process.kill()

    assert -signal.SIGTERM == status

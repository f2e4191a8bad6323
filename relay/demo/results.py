"""The results per combination: one row for each backend, backend version, upstream head and suite version."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from levels.powers import POWERS
from relay.demo.scene import ACTORS
from relay.demo.stage import Stage
from relay.store.reading.change import change_page
from relay.store.reading.changes import newest_change


@dataclass(frozen=True, slots=True, order=True)
class Combination:
    """What is counted apart."""

    number: int
    head_sha: str
    backend: str
    backend_version: str
    suite_version: str


@dataclass(frozen=True, slots=True)
class Result:
    """How one combination did. ``seconds`` is its longest job, None where none has told its times."""

    combination: Combination
    level: str
    outcome: str
    passed: int
    failed: int
    skipped: int
    seconds: float | None


def kept(stage: Stage) -> list[Result]:
    """What the relay has recorded, read as its pages read it."""
    relay = stage.relay

    def unit(conn: Connection) -> list[Result]:
        found: list[Result] = []
        for one in stage.opened:
            change_id = newest_change(conn, one.pr.number)
            page = None if change_id is None else change_page(conn, change_id, relay.terms, relay.keeper.known())
            for backend in page.backends if page is not None else ():
                facts = backend.told.facts
                for combination in backend.combinations:
                    legs = [leg.facts for leg in combination.legs]
                    times = [leg.seconds for leg in legs if leg.seconds is not None]
                    found.append(
                        Result(
                            Combination(
                                one.pr.number,
                                page.change.head_sha if page is not None else "",
                                str(facts.backend),
                                combination.backend_version or "",
                                combination.suite_version or "",
                            ),
                            str(facts.level_then.name),
                            str(combination.outcome),
                            sum(leg.passed or 0 for leg in legs),
                            sum(leg.failed or 0 for leg in legs),
                            sum(leg.skipped or 0 for leg in legs),
                            max(times, default=None),
                        )
                    )
        return sorted(found, key=lambda result: result.combination)

    return relay.store.read_now(unit)


def ran(stage: Stage) -> dict[Combination, str]:
    """What the runs at GitHub came to, where the backend's level lets results be recorded."""
    heads = {one.pr.number: one.pr.head_sha for one in stage.opened}
    return {
        Combination(
            number := int(run.client_payload["payload"]["number"]),
            heads[number],
            actor.name,
            job.plan.backend_version or "",
            job.plan.suite_version or "",
        ): job.conclusion or job.status
        for actor in ACTORS
        if POWERS[actor.level].recorded
        for run in stage.backends[actor.name].runs
        for job in run.jobs
    }


def forwarded(stage: Stage) -> list[tuple[str, str, str]]:
    """The finished reports that reached the HUD: backend, delivery and job, each as often as it came."""
    return sorted(
        (
            str(row.body["trusted"]["verified_repo"]),
            str(row.body["untrusted"]["callback_payload"]["delivery_id"]),
            str(row.body["untrusted"]["callback_payload"]["workflow"]["job_name"]),
        )
        for row in stage.sim.hud.rows
        if row.body["untrusted"]["callback_payload"]["workflow"]["status"] == "completed"
    )

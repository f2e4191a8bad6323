"""A moment of the week in `make test`; CI plays a minute and a half of it, `make soak` all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from allowlist.parse import parse
from relay.store.engine import make_engine
from tests.soak.__main__ import table
from tests.soak.fleet import BACKENDS, MISCHIEF, allowlist, fleet
from tests.soak.outage import database_down
from tests.soak.soak import Plan, Soak
from tests.soak.traffic import DAYS, EVENTS_A_DAY, moments
from tests.soak.weather import Blow, forecast


def test_the_fleet_is_what_was_asked_for() -> None:
    """Sixty backends over all levels, all of their entries in force, a tenth of them misbehaving."""
    members = fleet()
    listed = parse(allowlist(members))

    assert BACKENDS == len(members) == len(listed.entries)
    assert () == listed.faults
    assert BACKENDS // 10 <= sum(member.manner in MISCHIEF for member in members) <= BACKENDS // 5
    assert {"L1", "L2", "L3", "L4"} == {member.level for member in members}


def test_a_week_has_all_its_events_and_every_kind_of_trouble() -> None:
    """The same seed gives the same week."""
    assert EVENTS_A_DAY * DAYS <= len(moments(3, 2_000.0)) < EVENTS_A_DAY * DAYS + 100
    assert moments(3, 2_000.0) == moments(3, 2_000.0)
    spells = forecast(3, 2_000.0, ["org/backend"])
    assert set(Blow) == {spell.blow for spell in spells}
    assert spells == forecast(3, 2_000.0, ["org/backend"])
    assert Blow.KILL not in {spell.blow for spell in forecast(3, 30.0, ["org/backend"], kills=False)}


def test_nobody_commits_to_a_database_that_is_down(database_url: str) -> None:
    """It is away for whoever was connected and whoever comes, and back as it was."""
    sqlite = database_url.startswith("sqlite")
    engine = create_engine(database_url, connect_args={"timeout": 0}) if sqlite else make_engine(database_url)

    def commits() -> bool:
        """Whether a statement that writes gets through."""
        try:
            with engine.begin() as conn:
                conn.execute(text("UPDATE effect SET id = id WHERE id < 0"))
        except OperationalError:
            return False
        return True

    before = commits()
    with database_down(database_url):
        down = [commits(), commits()]
    after = commits()
    engine.dispose()

    assert (True, [False, False], True) == (before, down, after)


@pytest.mark.slow
@pytest.mark.whole
def test_a_moment_of_the_week_keeps_every_promise(tmp_path: Path, sqlite_template: Path) -> None:
    """A real process, killed once, under faults: nothing is lost, nothing told twice without a reason, no gate open."""
    database = tmp_path / "relay.db"
    database.write_bytes(sqlite_template.read_bytes())
    said: list[str] = []
    plan = Plan(minutes=0.1, week_minutes=40.0, backends=24, deadline=6, trouble_every=2.0, patience=60.0, quiet=2.0)

    outcome = Soak(plan, tmp_path, f"sqlite:///{database}", said.append).play()

    assert outcome.ok, "\n".join((*said, table(outcome)))
    assert outcome.verdict.pairs > 20
    assert outcome.verdict.callbacks_accepted > 10
    assert 1 == outcome.faults[Blow.KILL]
    assert (0, {}) == (outcome.early, outcome.limit_hits)
    assert not replace(outcome, early=1).ok

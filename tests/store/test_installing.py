"""The app comes to a backend's repository, or leaves it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allowlist.model import Entry, Level, RepoName
from relay.deciding.effects import Kind, NewEffect
from relay.deciding.events import InstallationEvent, InstalledRepository
from relay.store.engine import Store
from relay.store.outbox import claim, enqueue
from relay.store.tables import Backend
from tests.conftest import Clock
from tests.relay.planning import XPU, pull_request
from tests.store.taking_in import Intake

CALM = replace(XPU, repo=RepoName("org", "calm"), level=Level.L1)
OTHER = Entry(RepoName("elsewhere", "other"), Level.L4)


@pytest.fixture
def intake(store: Store, clock: Clock) -> Intake:
    """Three backends under two accounts."""
    return Intake(store, (XPU, CALM, OTHER), clock.now())


def installation(action: str, *names: str, number: int = 9) -> InstallationEvent:
    """An installation on org that names these repositories."""
    repositories = tuple(InstalledRepository(RepoName.parse(name), 1) for name in names)
    return InstallationEvent(action, number, None, "org", repositories)


def installed(intake: Intake) -> dict[str, int | None]:
    """Which installation reaches which backend."""
    table = Backend.__table__  # type: ignore[attr-defined]
    rows = intake.store.read_now(lambda conn: conn.execute(table.select()).all())
    return {row.repo: row.installation_id for row in rows}


def test_an_installation_is_kept_for_listed_repositories(intake: Intake) -> None:
    """Whoever may report is pinned at once; the others are none of ours."""
    taken = intake.take(installation("created", "org/xpu", "org/calm", "org/unlisted"))

    assert {"org/xpu": 9, "org/calm": 9} == installed(intake)
    assert [("org/xpu", "ready")] == intake.effects("pin_backend")
    assert [("pin_backend", "org/xpu", "installed")] == [
        (decision.effect, decision.backend, decision.reason) for decision in taken.planned
    ]
    assert [("installation", "created", "")] == intake.deliveries("event", "action", "repository")


@pytest.mark.parametrize("action", ["created", "added", "unsuspend", "new_permissions_accepted"])
def test_what_died_for_want_of_the_app_is_tried_again(intake: Intake, action: str) -> None:
    """CASES 4: revived when the app is installed. What died of something else stays dead."""
    intake.take(pull_request(), "D1")
    intake.mark_effects("dead", "not_installed", subject="org/xpu")
    intake.mark_effects("dead", "gone", subject="org/calm")
    intake.mark_effects("dead", "not_installed", subject="elsewhere/other")
    intake.mark_dispatches("dead", "undelivered")

    intake.take(installation(action, "org/xpu", "org/calm"), "D2")

    assert {
        ("org/xpu", "planned", "queued"),
        ("org/calm", "dead", "undelivered"),
        ("elsewhere/other", "dead", "undelivered"),
    } == set(intake.dispatches("backend", "state", "outcome"))
    claimed = intake.store.write_now(lambda conn: claim(conn, owner="me", count=99, now=intake.now))
    assert ["org/xpu"] == [effect.subject for effect in claimed if effect.kind == "dispatch"]


@pytest.mark.parametrize(
    ("account", "names", "state"),
    [("up", (), "ready"), ("up", ("up/stream",), "ready"), ("up", ("up/else",), "dead"), ("org", (), "dead")],
)
def test_checks_that_died_for_want_of_a_permission_are_written_after_all(
    intake: Intake, account: str, names: tuple[str, ...], state: str
) -> None:
    """A required check that never comes blocks for ever, and no other event may come for that head."""
    intake.take(pull_request(), "D1")
    intake.mark_effects("dead", "missing_permission", kind="reconcile_check")

    intake.take(replace(installation("new_permissions_accepted", *names), account=account), "D2")

    assert {state} == {found for _, found in intake.effects("reconcile_check")}


@pytest.mark.parametrize("action", ["deleted", "removed", "suspend"])
def test_an_installation_that_ends_is_forgotten(intake: Intake, action: str) -> None:
    """Only where it is the one we know: it may have been replaced already."""
    intake.take(installation("created", "org/xpu"), "D1")
    intake.take(installation("created", "org/calm", number=10), "D2")

    intake.take(installation(action, "org/xpu", "org/calm"), "D3")

    assert {"org/xpu": None, "org/calm": 10} == installed(intake)


def test_an_event_that_names_no_repository_means_the_whole_account(intake: Intake) -> None:
    """New permissions are accepted for an account; a list of repositories that is empty names none."""
    intake.take(installation("new_permissions_accepted"), "D1")
    assert {"org/xpu": 9, "org/calm": 9} == installed(intake)

    intake.take(installation("removed"), "D2")
    assert {"org/xpu": 9, "org/calm": 9} == installed(intake)


def test_a_repeated_installation_changes_nothing(intake: Intake) -> None:
    """A redelivery of the old event must not undo a newer one."""
    intake.take(installation("created", "org/xpu"), "D1")
    intake.take(installation("deleted", "org/xpu"), "D2")

    assert "duplicate" == intake.take(installation("created", "org/xpu"), "D1").status
    assert {"org/xpu": None} == installed(intake)


def test_an_unlisted_repository_leaves_only_the_delivery(intake: Intake) -> None:
    """The app may be installed for other reasons."""
    assert () == intake.take(installation("created", "org/unlisted")).planned
    assert () == intake.take(installation("deleted", "org/unlisted"), "D2").planned
    assert {} == installed(intake)


def test_what_upstream_and_backends_refused_for_want_of_a_permission_is_tried_again(intake: Intake) -> None:
    """Comments and commits at upstream, looks at a backend's runs; what a person had asked for is theirs to repeat."""
    now = intake.now
    owed = [
        NewEffect(Kind.RECONCILE_COMMENT, "c", "account up", subject_id=1),
        NewEffect(Kind.CONFIRM_COMMIT, "k", "account up", subject_id=1, subject="1" * 40),
        NewEffect(Kind.RUN_COMMAND, "r", "account up", subject_id=1),
        NewEffect(Kind.OBSERVE, "o", "account org", subject_id=1, subject="org/xpu"),
        NewEffect(Kind.OBSERVE, "p", "account elsewhere", subject_id=2, subject="elsewhere/other"),
    ]
    intake.store.write_now(lambda conn: enqueue(conn, owed, now))
    for effect in owed:
        intake.mark_effects("dead", "missing_permission", effect.kind.value)

    intake.take(replace(installation("new_permissions_accepted"), account="up"), "D1")
    intake.take(installation("unsuspend"), "D2")

    assert ["ready"] == [state for _, state in intake.effects("reconcile_comment")]
    assert ["ready"] == [state for _, state in intake.effects("confirm_commit")]
    assert ["dead"] == [state for _, state in intake.effects("run_command")]
    assert [("org/xpu", "ready"), ("elsewhere/other", "dead")] == intake.effects("observe")

"""A backend's repository is archived and comes back, moves, goes, or is hidden."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allowlist.model import Allowlist, Entry, Level, RepoName
from relay.deciding.circuits import Circuit, State, backend_key
from relay.deciding.events import Ignored, RepositoryEvent
from relay.github.port import Located
from relay.store import circuits
from relay.store.circuits import Book
from relay.store.dispatching import note_backend_error, pin
from relay.store.engine import Store
from relay.store.intake import Received, Recorded
from relay.store.repositories import note_not_seen, note_seen, record_repository
from relay.store.tables import Backend
from tests.conftest import Clock
from tests.relay.planning import XPU, pull_request
from tests.store.taking_in import TERMS, UPSTREAM, Intake

CALM = Entry(RepoName("org", "calm"), Level.L2)
XPU_ID, CALM_ID = 11, 12


@pytest.fixture
def intake(store: Store, clock: Clock) -> Intake:
    """Two backends that are known by id, and a third that nobody has looked at yet."""
    taken = Intake(store, (XPU, CALM, replace(XPU, repo=RepoName("org", "new"))), clock.now())
    for entry, number in ((XPU, XPU_ID), (CALM, CALM_ID)):
        located = Located(9, number, 5, private=False, full_name=entry.repo)
        store.write_now(lambda conn, repo=entry.repo, located=located: pin(conn, repo, located, clock.now()))  # type: ignore[misc]
    return taken


def comes(intake: Intake, action: str, number: int, name: str, delivery_id: str = "R1") -> Recorded | Ignored:
    """One webhook about a repository."""
    event = RepositoryEvent(action, number, RepoName.parse(name), "ada")
    received = Received(delivery_id, "repository", "{}")
    allowlist = Allowlist(intake.entries)
    return intake.store.write_now(
        lambda conn: record_repository(conn, event, received, allowlist=allowlist, terms=TERMS, now=intake.now)
    )


def happens(intake: Intake, action: str, number: int, name: str, delivery_id: str = "R1") -> Recorded:
    """One that is kept."""
    taken = comes(intake, action, number, name, delivery_id)
    assert isinstance(taken, Recorded)
    return taken


def given_up(intake: Intake, reason: str = "archived") -> None:
    """Every backend was to be told of a pull request, and every dispatch was given up."""
    intake.take(pull_request(), "D1")
    intake.mark_effects("dead", reason)
    intake.mark_dispatches("dead", "undelivered")


def errors(intake: Intake) -> dict[str, str]:
    """The first word of what went wrong with each backend, where something did."""
    table = Backend.__table__  # type: ignore[attr-defined]
    rows = intake.store.read_now(lambda conn: conn.execute(table.select()).all())
    return {row.repo: row.last_error.partition(":")[0] for row in rows if row.last_error}


def shows(intake: Intake, repo: RepoName, *, archived: bool) -> None:
    """GitHub is asked for it, and shows it."""
    located = Located(9, 1, 5, private=False, full_name=repo, archived=archived)
    intake.store.write_now(lambda conn: note_seen(conn, repo, located, intake.now))


def unseen(intake: Intake, repo: RepoName, reason: str) -> None:
    """GitHub is asked for it, and does not show it."""
    intake.store.write_now(lambda conn: note_not_seen(conn, repo, reason, "as GitHub says", intake.now))


def hidden(intake: Intake) -> list[str]:
    """The backends whose links are shown to nobody, since their repository is private."""
    table = Backend.__table__  # type: ignore[attr-defined]
    rows = intake.store.read_now(lambda conn: conn.execute(table.select()).all())
    return [row.repo for row in rows if row.private]


def planned(intake: Intake) -> list[str]:
    """The backends that are told after all."""
    return [backend for backend, state in intake.dispatches("backend", "state") if state == "planned"]


@pytest.mark.parametrize("action", ["unarchived", "renamed", "transferred"])
def test_what_died_of_its_repository_is_tried_again(intake: Intake, action: str) -> None:
    """Known by its id, whatever it is called now; the others stay as they are."""
    given_up(intake)

    taken = happens(intake, action, XPU_ID, "elsewhere/xpu-2")

    assert ["org/xpu"] == planned(intake)
    assert [("dispatch", "org/xpu", "revived")] == [(one.effect, one.backend, one.reason) for one in taken.planned]
    assert "duplicate" == happens(intake, action, XPU_ID, "elsewhere/xpu-2").status


def test_a_name_is_no_reason(intake: Intake) -> None:
    """Another repository may bear it by now, and one that is not known by id is nobody's."""
    given_up(intake)

    taken = [
        comes(intake, "unarchived", 666, "org/xpu"),
        comes(intake, "unarchived", 667, "org/new", "R2"),
        comes(intake, "archived", 666, "org/xpu", "R3"),
    ]

    assert ["repository_unwanted"] * 3 == [one.reason_code for one in taken if isinstance(one, Ignored)]
    assert ([], {}) == (planned(intake), errors(intake))
    assert [("D1",)] == intake.deliveries("id")


def test_what_died_of_something_else_stays_dead(intake: Intake) -> None:
    """A payload that is too large is so in a new place too."""
    given_up(intake, "payload_too_large")
    happens(intake, "unarchived", XPU_ID, "org/xpu")

    assert [] == planned(intake)


def test_its_circuit_lets_the_next_one_through(intake: Intake) -> None:
    """There is a reason to hope, so nobody waits for the next probe."""
    key, now = backend_key("org/xpu"), intake.now
    book = Book({})
    later = now.replace(year=now.year + 1)
    book.put(key, Circuit(key, State.OFF, now, failures=9, several=True, held_until=later))
    intake.store.write_now(lambda conn: circuits.keep(conn, book))
    happens(intake, "archived", XPU_ID, "org/xpu")
    assert later == intake.store.read_now(circuits.load)[key].held_until
    happens(intake, "unarchived", XPU_ID, "org/xpu", "R2")

    assert now == intake.store.read_now(circuits.load)[key].held_until


def test_that_it_was_archived_or_deleted_is_said_until_it_is_back(intake: Intake) -> None:
    """The backend's row says why, before anything was tried."""
    taken = happens(intake, "archived", XPU_ID, "org/xpu")
    happens(intake, "deleted", CALM_ID, "org/calm", "R2")
    assert {"org/xpu": "archived", "org/calm": "deleted"} == errors(intake)
    assert [("pin_backend", "org/xpu", "archived")] == [(one.effect, one.backend, one.reason) for one in taken.planned]

    happens(intake, "unarchived", XPU_ID, "org/xpu", "R3")

    assert {"org/calm": "deleted"} == errors(intake)


@pytest.mark.parametrize("action", ["archived", "deleted"])
def test_what_a_webhook_said_of_it_is_asked_and_githubs_answer_stands(intake: Intake, action: str) -> None:
    """Webhooks that failed come days later and the newest first: one that is back must not be called away for ever."""
    happens(intake, action, XPU_ID, "org/xpu")
    happens(intake, action, CALM_ID, "org/calm", "R2")
    assert [("org/calm", "ready"), ("org/xpu", "ready")] == sorted(intake.effects("pin_backend"))

    shows(intake, XPU.repo, archived=False)
    assert {"org/calm": action} == errors(intake)
    shows(intake, XPU.repo, archived=True)
    shows(intake, CALM.repo, archived=True)

    assert {"org/xpu": "archived", "org/calm": "archived"} == errors(intake)


@pytest.mark.parametrize(("said", "archived"), [("switched_off", True), ("switched_off", False), ("forbidden", False)])
def test_what_says_more_is_not_replaced(intake: Intake, said: str, archived: bool) -> None:
    """That a backend is left alone says what for, and of other troubles a look at the repository says nothing."""
    intake.store.write_now(lambda conn: note_backend_error(conn, XPU.repo, f"{said}: for a reason", intake.now))
    shows(intake, XPU.repo, archived=archived)

    assert {"org/xpu": said} == errors(intake)


def test_one_that_is_deleted_is_called_so_although_it_cannot_be_seen(intake: Intake) -> None:
    """GitHub says no more than that the app has no such repository; what it died of, its webhook has said."""
    happens(intake, "deleted", XPU_ID, "org/xpu")
    for repo in (XPU.repo, CALM.repo):
        unseen(intake, repo, "not_installed")
    assert {"org/xpu": "deleted", "org/calm": "not_installed"} == errors(intake)
    unseen(intake, XPU.repo, "forbidden")

    assert {"org/xpu": "forbidden", "org/calm": "not_installed"} == errors(intake)


def test_what_is_private_is_hidden_at_once_and_shown_again_by_githubs_word_only(intake: Intake) -> None:
    """A webhook may be days old when it comes at last: by one that says "public" nothing is shown."""
    happens(intake, "privatized", XPU_ID, "org/xpu")
    assert (["org/xpu"], [("org/xpu", "ready")]) == (hidden(intake), intake.effects("pin_backend"))
    intake.mark_effects("done", kind="pin_backend")

    happens(intake, "publicized", XPU_ID, "org/xpu", "R2")

    assert ["org/xpu"] == hidden(intake)
    assert ("org/xpu", "ready") in intake.effects("pin_backend")


@pytest.mark.parametrize(("name", "state"), [(str(UPSTREAM), "ready"), ("org/xpu", "dead")])
def test_upstream_that_is_back_gets_its_checks(intake: Intake, name: str, state: str) -> None:
    """A required check that never comes blocks for ever."""
    intake.take(pull_request(), "D1")
    intake.mark_effects("dead", "archived", kind="reconcile_check")
    happens(intake, "unarchived", XPU_ID if name == "org/xpu" else 1, name)

    assert {state} == {found for _, found in intake.effects("reconcile_check")}

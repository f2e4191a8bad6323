"""An app that is installed everywhere tells of everything: what nobody listed is not kept, and shown to nobody."""

from __future__ import annotations

from typing import Any

import pytest

from relay.github.port import Located
from relay.store.dispatching import pin
from relay.store.engine import Store
from tests.conftest import Clock
from tests.edge.hook import Hook
from tests.edge.shown import Shown
from tests.relay.planning import XPU
from tests.store.taking_in import UPSTREAM, Intake

SECRET = "secret-chip"
XPU_ID, UPSTREAM_ID = 11, 12
ORG = "acme"


@pytest.fixture
def hook(store: Store, clock: Clock) -> Hook:
    """An edge with one backend that is known by id, as upstream is."""
    for name, number in ((XPU.repo, XPU_ID), (UPSTREAM, UPSTREAM_ID)):
        located = Located(9, number, 5, private=False, full_name=name)
        store.write_now(lambda conn, name=name, located=located: pin(conn, name, located, clock.now()))  # type: ignore[misc]
    return Hook(store, (XPU,), clock.now())


@pytest.fixture
def kept(store: Store, clock: Clock) -> Intake:
    """A look at what was stored."""
    return Intake(store, (), clock.now())


def repository(action: str, number: int, name: str = f"{ORG}/{SECRET}") -> dict[str, Any]:
    """What GitHub tells when something happens to a private repository."""
    return {
        "action": action,
        "repository": {"id": number, "full_name": name, "private": True},
        "changes": {"repository": {"name": {"from": "an-older-name"}}},
        "sender": {"login": "ada-of-acme"},
    }


def installation(action: str, account: str, *names: str, key: str = "repositories") -> dict[str, Any]:
    """What GitHub tells when the app comes to an account, or leaves it."""
    repositories = [{"id": number, "full_name": name} for number, name in enumerate(names, 1)]
    return {"action": action, "installation": {"id": 7, "app_id": 4, "account": {"login": account}}, key: repositories}


def everything(shown: Shown) -> str:
    """All that anybody may read of webhooks."""
    paths = ("/api/v1/deliveries", "/api/v1/deliveries/D1", "/api/v1/backends", "/api/v1/audit", "/api/v1/dead-letters")
    pages = ("/deliveries", "/deliveries/D1", "/backends", "/gaps", "/audit", "/")
    return "".join(shown.client.get(path).text for path in paths + pages)


@pytest.mark.parametrize("action", ["renamed", "archived", "unarchived", "privatized", "deleted", "transferred"])
def test_what_happens_to_a_stranger_s_repository_is_ignored_and_not_kept(
    hook: Hook, kept: Intake, shown: Shown, action: str
) -> None:
    """Its name is nobody's business, and neither is who did it; that somebody told us is counted."""
    answer = hook.post("repository", repository(action, 666))

    assert (202, "ignored", "repository_unwanted") == (
        answer.status_code,
        answer.json()["status"],
        answer.json()["reason"],
    )
    assert (1, 0) == (hook.counted("repository", "ignored"), hook.wakes)
    assert [] == kept.deliveries("id")
    assert not [word for word in (SECRET, ORG, "an-older-name") if word in everything(shown) + answer.text]


def test_one_that_is_listed_no_more_is_a_stranger(hook: Hook, kept: Intake) -> None:
    """Its id is known from before, and nobody asks for it now."""
    hook.entries = ()

    assert "ignored" == hook.post("repository", repository("renamed", XPU_ID)).json()["status"]
    assert [] == kept.deliveries("id")


@pytest.mark.parametrize(("number", "known"), [(XPU_ID, "org/xpu"), (UPSTREAM_ID, "up/stream")])
def test_what_is_ours_is_kept_under_the_name_that_we_know(
    hook: Hook, kept: Intake, shown: Shown, number: int, known: str
) -> None:
    """A backend that turned private and was renamed: the allowlist is public, and its new name is not."""
    answer = hook.post("repository", repository("renamed", number))

    assert "accepted" == answer.json()["status"]
    assert [("D1", "renamed", known)] == kept.deliveries("id", "action", "repository")
    assert SECRET not in everything(shown)


@pytest.mark.parametrize(
    ("event", "raw"),
    [
        ("installation", installation("created", ORG, f"{ORG}/{SECRET}")),
        ("installation", installation("suspend", ORG)),
        ("installation", installation("deleted", "org", f"org/{SECRET}")),
        ("installation_repositories", installation("added", ORG, f"{ORG}/{SECRET}", key="repositories_added")),
    ],
)
def test_an_installation_that_is_none_of_ours_is_ignored_and_not_kept(
    hook: Hook, kept: Intake, event: str, raw: dict[str, Any]
) -> None:
    """The app may be installed for other reasons, by anybody."""
    answer = hook.post(event, raw)

    assert ("ignored", "repository_unwanted") == (answer.json()["status"], answer.json()["reason"])
    assert [] == kept.deliveries("id")


@pytest.mark.parametrize(
    "raw",
    [
        installation("created", "org", f"org/{SECRET}", "Org/XPU"),
        installation("suspend", "org"),
        installation("new_permissions_accepted", "up"),
        installation("created", "up", "up/stream"),
    ],
)
def test_an_installation_on_a_backend_or_upstream_is_kept(
    hook: Hook, kept: Intake, shown: Shown, raw: dict[str, Any]
) -> None:
    """Whoever is listed beside others is heard of, and the others are not shown."""
    assert "accepted" == hook.post("installation", raw).json()["status"]
    assert [("D1",)] == kept.deliveries("id")
    assert SECRET not in everything(shown)

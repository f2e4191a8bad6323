"""The key that signs capabilities: made where none is set, and still good for what it signed once others are."""

from __future__ import annotations

from datetime import timedelta

import pytest

from relay.capability import CapabilityKeys
from relay.credentials import Credentials, capability_keys, load_apps
from relay.settings import Settings, load_settings
from relay.simulator.keys import private_pem, rsa_key
from relay.store import documents
from relay.store.engine import Store
from tests.conftest import Clock

FIRST, SECOND = "a first key, long enough", "a second key, long enough"


def settings(*keys: str) -> Settings:
    """Settings with these keys for capabilities."""
    return load_settings(
        {},
        upstream="up/stream",
        github_app_id=4,
        github_private_key=private_pem(rsa_key("app")),
        webhook_secrets=("a webhook secret",),
        secret_keys=keys,
    )


def in_force(store: Store, clock: Clock, *keys: str) -> Credentials:
    """What a process that starts with these keys goes by."""
    given = settings(*keys)
    return Credentials(given, load_apps(given), capability_keys(given, store, clock.now), None)


@pytest.mark.parametrize("restarted", [True, False], ids=["restart", "reread"])
def test_runs_told_before_a_key_was_set_may_report_after_it(store: Store, clock: Clock, restarted: bool) -> None:
    """The first key of the settings must not shut out whoever was told by the one that we had made."""
    before = in_force(store, clock)
    told = before.keys.issue(7)
    after = in_force(store, clock, FIRST) if restarted else before
    after.renew(settings(FIRST))
    assert (7, CapabilityKeys.of([FIRST]).issue(8)) == (after.keys.dispatch_of(told), after.keys.issue(8))

    after.renew(settings(SECOND))

    assert 7 == after.keys.dispatch_of(told)
    assert after.keys.dispatch_of(CapabilityKeys.of([FIRST]).issue(8)) is None
    assert CapabilityKeys.of([SECOND]).issue(9) == after.keys.issue(9)


def test_the_key_that_was_made_is_not_good_for_ever(store: Store, clock: Clock) -> None:
    """It lies in the database: once results by it can no longer come, it is forgotten."""
    told = in_force(store, clock).keys.issue(7)
    clock.advance(timedelta(days=400))
    in_force(store, clock, FIRST)
    clock.advance(timedelta(days=39))
    assert 7 == in_force(store, clock, FIRST).keys.dispatch_of(told)

    clock.advance(timedelta(days=2))

    assert in_force(store, clock, FIRST).keys.dispatch_of(told) is None
    assert store.read_now(lambda conn: documents.load(conn, documents.CAPABILITY_KEY)) is None
    assert in_force(store, clock).keys.dispatch_of(told) is None


def test_a_key_that_is_in_use_again_lasts_again(store: Store, clock: Clock) -> None:
    """The settings named others for a day only."""
    told = in_force(store, clock).keys.issue(7)
    in_force(store, clock, FIRST)
    in_force(store, clock)
    clock.advance(timedelta(days=60))

    assert 7 == in_force(store, clock, FIRST).keys.dispatch_of(told)


def test_no_key_is_made_where_one_is_set(store: Store, clock: Clock) -> None:
    """Nothing that could sign lies in the database then."""
    in_force(store, clock, FIRST)

    assert store.read_now(lambda conn: documents.load(conn, documents.CAPABILITY_KEY)) is None

"""When a circuit opens, what it lets through, and how it closes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from relay.deciding.circuits import (
    AT_FIRST,
    ENOUGH,
    GITHUB,
    LONGEST,
    OFF_AFTER,
    Circuit,
    Failure,
    Pace,
    State,
    backend_key,
    first_failure,
    keys_of,
)
from relay.deciding.effects import HUD_PACING, Kind

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
PACE = Pace()
BACKEND = backend_key("org/backend")


def fail(key: str, count: int, *, refused: bool = False, effects: int = 2, at: datetime = NOW) -> Circuit:
    """So many failures in a row, of so many effects."""
    failures = [Failure(str(number % effects), "why", "what it said", refused) for number in range(count)]
    circuit = first_failure(key, failures[0], at, PACE)
    for failure in failures[1:]:
        circuit = circuit.failed(failure, at, PACE)
    return circuit


def test_it_takes_several_failures_of_several_effects() -> None:
    """One sick effect says nothing of its account, however often it fails."""
    assert State.COUNTING is fail(GITHUB, ENOUGH - 1).state
    assert State.COUNTING is fail(GITHUB, ENOUGH * 3, effects=1).state
    assert State.OPEN is fail(GITHUB, ENOUGH).state
    assert fail(GITHUB, ENOUGH - 1).worked(NOW) is None


def test_probes_are_ever_rarer_but_never_rare() -> None:
    """A GitHub that is back is noticed within two minutes and a fifth."""
    circuit, now, waits = fail(GITHUB, ENOUGH), NOW, []
    for _ in range(6):
        assert circuit.held_until is not None
        waits.append((circuit.held_until - now).total_seconds())
        now = circuit.held_until
        circuit = circuit.probed(now, PACE).failed(Failure("1", "why", "again"), now, PACE)

    assert [10, 20, 40, 80, 120, 120] == waits
    assert LONGEST == timedelta(seconds=waits[-1])


def test_a_time_that_was_named_comes_before_any_probe() -> None:
    """Retry-After holds for probes too."""
    later = NOW + timedelta(minutes=30)
    circuit = fail(GITHUB, ENOUGH - 1).failed(Failure("9", "why", "503", not_before=later), NOW, PACE)

    assert later == circuit.held_until


def test_a_probe_that_fails_late_is_not_followed_by_another_at_once() -> None:
    """A call that hangs for longer than the wait between probes leaves what is ill a rest all the same."""
    opened = fail(GITHUB, ENOUGH)
    assert opened.held_until is not None
    ended = opened.held_until + timedelta(minutes=1)
    late = opened.probed(opened.held_until, PACE).failed(Failure("1", "too_slow", "nothing came"), ended, PACE)

    assert ended + timedelta(seconds=10) == late.held_until


def test_github_was_ill_only_where_several_accounts_had_no_answer() -> None:
    """What works in one account brings nothing forward in another whose backend is ill by itself."""
    assert not fail(GITHUB, ENOUGH - 1, effects=1).was_ill
    assert fail(GITHUB, ENOUGH - 1).was_ill
    assert fail("account org", ENOUGH - 1, effects=1).was_ill


def test_it_comes_back_gently_and_is_forgotten() -> None:
    """A few at first and one more for each that worked; halved where something fails."""
    circuit = fail(GITHUB, ENOUGH).worked(NOW)

    assert circuit is not None
    assert (State.RECOVERING, AT_FIRST) == (circuit.state, circuit.allowed)
    more = circuit.worked(NOW)
    assert more is not None
    assert AT_FIRST + 1 == more.allowed
    assert AT_FIRST // 2 == circuit.failed(Failure("1", "why", "what"), NOW, PACE).allowed
    assert circuit.worked(NOW + timedelta(minutes=6)) is None


def test_only_backends_are_switched_off_and_only_after_days() -> None:
    """GitHub and accounts are waited for as long as it takes."""
    later = NOW + OFF_AFTER
    again = Failure("1", "why", "what")

    assert State.OFF is fail(BACKEND, ENOUGH).failed(again, later, PACE).state
    assert State.OPEN is fail(BACKEND, ENOUGH).failed(again, later - timedelta(minutes=1), PACE).state
    assert State.OPEN is fail(GITHUB, ENOUGH).failed(again, later, PACE).state
    assert State.OPEN is fail("account org", ENOUGH).failed(again, later, PACE).state


def test_what_is_refused_ends_and_what_is_not_answered_waits() -> None:
    """A gate waits for nothing that waiting does not mend."""
    assert fail(BACKEND, ENOUGH, refused=True).ends_what_comes
    assert not fail(BACKEND, ENOUGH).ends_what_comes
    back = fail(BACKEND, ENOUGH, refused=True).worked(NOW)
    assert back is not None
    assert State.RETURNED is back.state


def test_what_was_ended_is_remembered_whatever_happens_before_it_is_told() -> None:
    """The last refusal before a return may have been none, and the first failure after it comes before the sweep."""
    later = NOW + timedelta(days=1)
    unsure = fail(BACKEND, ENOUGH, refused=True).failed(Failure("1", "why", "502"), later, PACE)
    back = unsure.worked(later)
    assert back is not None
    again = back.failed(Failure("2", "why", "what", refused=True), later, PACE)

    assert not unsure.ends_what_comes
    assert (State.RETURNED, NOW) == (back.state, back.since)
    assert (State.RETURNED, NOW) == (again.state, again.since)


def test_which_circuits_an_effect_goes_through() -> None:
    """The HUD is none of GitHub's, and only a dispatch says something of its backend."""
    assert (GITHUB, "account org", BACKEND) == keys_of(Kind.DISPATCH, "account org", "org/backend")
    assert (GITHUB, "account org") == keys_of(Kind.OBSERVE, "account org", "org/backend")
    assert (HUD_PACING,) == keys_of(Kind.FORWARD_HUD, HUD_PACING, "")

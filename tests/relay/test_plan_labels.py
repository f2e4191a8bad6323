"""A label starts a run only where none of its head is on its way, running or finished."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allowlist.model import Entry, Level
from relay.deciding.known import Known
from relay.deciding.plan import LIVE, NewDispatch, Purpose
from tests.relay.planning import (
    EVERY,
    NPU,
    PATHS,
    PICKY,
    S1,
    S2,
    XPU,
    head,
    labeled,
    planned,
    pull_request,
    reasons,
    told,
)


@pytest.mark.parametrize("label", ["ciflow/crcr/npu", "ciflow/oot/npu", "CIFlow/CRCR/NPU"])
def test_an_l3_label_starts_a_run_where_none_is_live(label: str) -> None:
    """It repeats the head's newest payload under a fresh id. CASES 31; GitHub's labels ignore case."""
    (made,) = planned(labeled(label), NPU, known=Known((head(S1),))).dispatches

    assert ("pull_request", "fresh-1", "D1", "labelled", "planned", Purpose.TEST) == (
        made.event_type,
        made.delivery_id,
        made.payload_delivery,
        made.reason,
        made.state,
        made.purpose,
    )


@pytest.mark.parametrize("state", sorted(LIVE))
def test_an_l3_label_starts_nothing_while_a_run_is_live_or_has_finished(state: str) -> None:
    """The label then only shows the check."""
    known = Known((head(S1),), (told(NPU, state=state),))

    found = planned(labeled("ciflow/crcr/npu"), NPU, known=known)

    assert ["already_dispatched"] == reasons(found)


@pytest.mark.parametrize("state", ["superseded", "dead", "filtered", "paused"])
def test_an_l3_label_makes_up_for_a_run_that_never_was(state: str) -> None:
    """Dead, filtered or superseded: the backend never heard of this head."""
    assert planned(labeled("ciflow/crcr/npu"), NPU, known=Known((head(S1),), (told(NPU, state=state),))).dispatches


@pytest.mark.parametrize(
    ("label", "entry"),
    [
        ("ciflow/crcr/gpu", NPU),
        ("ciflow/crcr/npu2", NPU),
        ("npu", NPU),
        ("ciflow/crcr/npu", replace(NPU, level=Level.L4)),
        ("ciflow/crcr/npu", replace(NPU, level=Level.L2)),
        ("ciflow/crcr/", replace(NPU, device=None)),
    ],
)
def test_another_label_or_level_starts_nothing(label: str, entry: Entry) -> None:
    """Only L3's own label is a request for its run."""
    assert ["filtered_actions"] == reasons(planned(labeled(label), entry, known=Known((head(S1),))))


def test_a_label_that_a_filter_waited_for_starts_the_run() -> None:
    """The entry was told nothing before, because this label was missing."""
    found = planned(labeled("Test Me"), PICKY, XPU, known=Known((head(S1),)))

    assert ["labelled", "filtered_actions"] == reasons(found)
    assert "fresh-1" == found.dispatches[0].delivery_id


def test_a_label_does_not_pass_the_other_filters() -> None:
    """The label is one of several conditions."""
    dev_only = replace(NPU, base=("dev",))
    with_paths = replace(NPU, paths=("aten/**",))

    found = planned(labeled("ciflow/crcr/npu"), dev_only, with_paths, known=Known((head(S1),)))

    assert ["filtered_base", "pending_paths"] == reasons(found)
    assert "labelled" == found.dispatches[0].reason


def test_an_entry_that_asks_for_labeled_gets_one_dispatch_and_not_two() -> None:
    """The webhook itself is its run; while one is live it is only told."""
    asks = replace(NPU, actions=frozenset({"opened", "labeled"}))

    (first,) = planned(labeled("ciflow/crcr/npu"), asks, known=Known((head(S1),)), delivery_id="D2").dispatches
    (second,) = planned(
        labeled("ciflow/crcr/npu"), asks, known=Known((head(S1),), (told(asks),)), delivery_id="D2"
    ).dispatches

    assert [(Purpose.TEST, "D2"), (Purpose.NOTIFY, "D2")] == [
        (made.purpose, made.delivery_id) for made in (first, second)
    ]


def test_a_label_that_has_gone_again_starts_nothing() -> None:
    """The webhook of its removal came first."""
    known = Known((head(S1, 9, labels=("bug",)),))

    assert ["label_gone"] == reasons(planned(labeled("ciflow/crcr/npu"), NPU, known=known))


def test_a_label_on_a_closed_or_replaced_head_starts_nothing() -> None:
    """There is nothing under test."""
    closed = planned(labeled("ciflow/crcr/npu", closed=True), NPU, known=Known((head(S1, 2, "closed"),)))
    replaced = planned(labeled("ciflow/crcr/npu"), NPU, known=Known((head(S1), head(S2, 9))))

    assert [["change_closed"], ["older_event"]] == [reasons(closed), reasons(replaced)]


def test_a_label_before_everything_else_starts_the_run_with_its_own_payload() -> None:
    """The webhook of the opening may come later, and finds its run under way."""
    first = planned(labeled("ciflow/crcr/npu", 5), NPU, delivery_id="D2")
    assert ["D2"] == [made.payload_delivery for made in first.dispatches]

    known = Known((head(S1, 5, action="labeled", payload_delivery="D2"),), (told(NPU, reason="labelled"),))
    assert ["already_dispatched"] == reasons(planned(pull_request("opened", S1, 5), NPU, known=known))


def test_a_plan_s_dispatches_have_distinct_backends() -> None:
    """One event tells a backend once."""
    found = planned(labeled("ciflow/crcr/npu"), NPU, PICKY, XPU, EVERY, PATHS, known=Known((head(S1),)))

    backends = [made.entry.repo for made in found.dispatches]
    assert len(set(backends)) == len(backends)
    assert all(isinstance(made, NewDispatch) for made in found.dispatches)

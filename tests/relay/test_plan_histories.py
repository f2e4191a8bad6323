"""Whatever order webhooks come in, the same head ends up under test, once, and nothing stale is sent."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allowlist.model import Allowlist, Entry
from relay.deciding.events import PullRequestEvent
from relay.deciding.known import Known, KnownDispatch, KnownHead
from relay.deciding.plan import LIVE, STARTS, UNSENT, HeadState, Plan, Purpose, plan
from tests.relay.planning import EVERY, NPU, PICKY, PREFIXES, T0, XPU, at, fresh_ids, pull_request

pytestmark = pytest.mark.slow

ENTRIES = (XPU, EVERY, NPU, PICKY)
LABELS = ("test me", "ciflow/crcr/npu", "bug")


@dataclass
class Memory:
    """A store of the simplest kind: it does what plans say, and its worker always wins or has not begun."""

    heads: dict[str, KnownHead] = field(default_factory=dict)
    dispatches: list[KnownDispatch] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    plans: list[Plan] = field(default_factory=list)

    def deliver(self, delivery_id: str, event: PullRequestEvent) -> None:
        """Take one webhook in, as ``relay.store.intake`` does."""
        if delivery_id in self.seen:
            return
        self.seen.add(delivery_id)
        found = plan(
            event,
            delivery_id=delivery_id,
            received_at=T0,
            allowlist=Allowlist(ENTRIES),
            known=Known(tuple(self.heads.values()), tuple(self.dispatches)),
            label_prefixes=PREFIXES,
            fresh_id=fresh_ids(),
        )
        self.plans.append(found)
        for head in list(self.heads.values()):
            if head.id in found.superseded_heads:
                self.heads[head.head_sha] = replace(head, state="superseded")
        self.dispatches = [
            replace(told, state="superseded") if told.id in found.superseded_dispatches else told
            for told in self.dispatches
        ]
        old = self.heads.get(event.head_sha)
        new = old or KnownHead(len(self.heads) + 1, event.head_sha, "", at(0))
        if found.newest:
            assert event.updated_at is not None
            new = replace(new, updated_at=event.updated_at, labels=event.labels)
        if found.describes:
            new = replace(new, action=event.action, payload_delivery=delivery_id, came_from=event.before)
        self.heads[event.head_sha] = replace(new, state=found.head_state.value)
        self.dispatches += [
            KnownDispatch(
                len(self.dispatches) + number,
                event.head_sha,
                made.entry.repo,
                made.purpose,
                made.state,
                made.reason,
                made.entry.every_commit,
            )
            for number, made in enumerate(found.dispatches, 1)
        ]

    def send(self, which: random.Random) -> None:
        """The worker gets round to some of what is planned."""
        self.dispatches = [
            replace(told, state="sent") if told.state == "planned" and which.random() < 0.5 else told
            for told in self.dispatches
        ]

    def open_heads(self) -> list[str]:
        """The heads that count as under test."""
        return [head.head_sha for head in self.heads.values() if head.state == HeadState.OPEN]

    def tests_of(self, entry: Entry, head_sha: str) -> list[KnownDispatch]:
        """Test dispatches of a head to a backend that are live."""
        return [
            told
            for told in self.dispatches
            if (told.backend, told.head_sha, told.purpose) == (entry.repo, head_sha, Purpose.TEST)
            and told.state in LIVE
        ]


@st.composite
def histories(draw: st.DrawFn) -> list[PullRequestEvent]:
    """What really happened to a pull request, one thing a minute, in order."""
    heads = [f"{number}" * 40 for number in range(1, 4)]
    current, is_open = heads[0], True
    labels: tuple[str, ...] = ()
    events = [pull_request("opened", current, 0)]
    for minute, step in enumerate(draw(st.lists(st.sampled_from("pplucr"), max_size=10)), 1):
        before = None
        label = None
        match step:
            case "p" if is_open:
                action, before = "synchronize", current
                current = draw(st.sampled_from([head for head in heads if head != current]))
            case "l":
                action, label = "labeled", draw(st.sampled_from(LABELS))
                labels = (*[name for name in labels if name != label], label)
            case "u" if labels:
                action, label = "unlabeled", labels[0]
                labels = labels[1:]
            case "c" if is_open:
                action, is_open = "closed", False
            case "r" if not is_open:
                action, is_open = "reopened", True
            case _:
                continue
        events.append(
            pull_request(action, current, minute, before=before, label=label, labels=labels, closed=not is_open)
        )
    return events


@settings(max_examples=150, deadline=timedelta(seconds=2))
@given(history=histories(), seed=st.integers(0, 2**32), copies=st.integers(1, 2))
def test_any_order_of_webhooks_ends_with_the_same_head_under_test(
    history: list[PullRequestEvent], seed: int, copies: int
) -> None:
    """Shuffled, repeated, and with a worker that sends in between."""
    chance = random.Random(seed)
    memory = Memory()
    arrivals = [(f"D{number}", event) for number, event in enumerate(history)] * copies
    chance.shuffle(arrivals)
    for delivery_id, event in arrivals:
        memory.deliver(delivery_id, event)
        memory.send(chance)

    last = history[-1]
    assert memory.open_heads() == ([] if last.closed else [last.head_sha])
    # Nothing that nobody waits for is still to be sent.
    stale = [
        told
        for told in memory.dispatches
        if told.purpose == Purpose.TEST
        and told.state in UNSENT
        and not told.every_commit
        and (last.closed or told.head_sha != last.head_sha)
    ]
    assert [] == stale
    if not last.closed:
        assert memory.tests_of(XPU, last.head_sha)
        assert memory.tests_of(NPU, last.head_sha)
        if "test me" in last.labels:
            assert memory.tests_of(PICKY, last.head_sha)
    for head_sha in {event.head_sha for event in history if event.action in STARTS}:
        assert memory.tests_of(EVERY, head_sha), "every commit was asked for"
    _never_twice_by_repetition(memory, history)


def _never_twice_by_repetition(memory: Memory, history: list[PullRequestEvent]) -> None:
    """A head is run once, and once more for each time somebody reopened the pull request with it."""
    reopened = Counter(event.head_sha for event in history if event.action == "reopened")
    for entry in ENTRIES:
        for head_sha in memory.heads:
            assert len(memory.tests_of(entry, head_sha)) <= 1 + reopened[head_sha]


@settings(max_examples=60, deadline=timedelta(seconds=2))
@given(history=histories(), seed=st.integers(0, 2**32))
def test_an_older_event_never_supersedes_a_newer_head(history: list[PullRequestEvent], seed: int) -> None:
    """Of each plan: what it takes back is older than what it was made for."""
    chance = random.Random(seed)
    memory = Memory()
    arrivals = [(f"D{number}", event) for number, event in enumerate(history)]
    chance.shuffle(arrivals)
    for delivery_id, event in arrivals:
        before = {head.id: head for head in memory.heads.values()}
        memory.deliver(delivery_id, event)

        assert event.updated_at is not None
        for number in memory.plans[-1].superseded_heads:
            assert before[number].updated_at <= event.updated_at


@settings(max_examples=60, deadline=timedelta(seconds=2))
@given(history=histories())
def test_webhooks_of_one_second_in_their_order_end_with_the_last_head(history: list[PullRequestEvent]) -> None:
    """Where GitHub's clock says nothing, its links and the order of arrival do."""
    memory = Memory()
    for number, event in enumerate(history):
        memory.deliver(f"D{number}", replace(event, updated_at=T0))

    last = history[-1]
    assert memory.open_heads() == ([] if last.closed else [last.head_sha])

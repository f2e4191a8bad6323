"""GitHub's own webhooks, all 329 published examples, through the real edge.

They are retargeted to our upstream and our app, so that what is planned and what is kept of them can be asserted.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from allowlist.model import ACTIONS
from relay.deciding.events import PULL_REQUEST_ACTIONS, REPOSITORY_ACTIONS, WANTED_EVENTS
from relay.deciding.plan import STARTS
from relay.store.engine import Store
from tests.conftest import Clock
from tests.contract.npm_package import PackageUnavailableError, read_json
from tests.edge.hook import Hook
from tests.relay.documented import DOCUMENTED, at
from tests.relay.planning import XPU
from tests.store.taking_in import Intake

pytestmark = [pytest.mark.npm, pytest.mark.slow]

PACKAGE = "@octokit/webhooks-examples@7.6.1"
#: Wants every event of both kinds, so that each example that is work is a dispatch.
EAGER = replace(XPU, actions=ACTIONS)


@dataclass(frozen=True)
class Example:
    """One payload, and the delivery id under which it is sent."""

    event: str
    delivery_id: str
    raw: Mapping[str, Any]


@pytest.fixture(scope="session")
def published() -> tuple[Example, ...]:
    """The examples as they are published. Skips, with the reason, where npm cannot fetch them."""
    try:
        index = read_json(PACKAGE, "api.github.com/index.json")
    except PackageUnavailableError as error:
        pytest.skip(f"GitHub's webhook examples are not to be had: {error}")
    pairs = [(entry["name"], raw) for entry in index for raw in entry["examples"]]
    return tuple(Example(event, f"D{number}", raw) for number, (event, raw) in enumerate(pairs))


@pytest.fixture(scope="session")
def examples(published: tuple[Example, ...]) -> tuple[Example, ...]:
    """The examples as if they came from our upstream, and for our app."""
    retargeted = []
    for example in published:
        raw = copy.deepcopy(dict(example.raw))
        if isinstance(raw.get("repository"), dict):
            raw["repository"]["full_name"] = "Up/Stream"
        if "app_id" in raw.get("installation", {}):
            raw["installation"]["app_id"] = 4
            raw["installation"]["account"]["login"] = "org"
            for key in ("repositories", "repositories_added", "repositories_removed"):
                for repository in raw.get(key, [])[:1]:
                    repository["full_name"] = "org/xpu"
        if example.event == "pull_request":
            # All of them are of two pull requests and few commits: each becomes one of its own, so that the answer to
            # one does not depend on what came before.
            number = int(example.delivery_id[1:])
            raw["number"] = raw["pull_request"]["number"] = number
            raw["pull_request"]["head"]["sha"] = f"{number:040x}"
        if example.event == "push" and not raw["deleted"]:
            raw["after"] = f"{int(example.delivery_id[1:]):040x}"
        retargeted.append(Example(example.event, example.delivery_id, raw))
    return tuple(retargeted)


@pytest.fixture
def hook(store: Store, clock: Clock) -> Hook:
    """An edge with one backend that wants everything."""
    return Hook(store, (EAGER,), clock.now())


@pytest.fixture
def kept(store: Store, clock: Clock) -> Intake:
    """A look at what was stored."""
    return Intake(store, (), clock.now())


def is_work(example: Example) -> bool:
    """Whether the protocol says that this webhook is to be acted on."""
    action = example.raw.get("action")
    if example.event == "push":
        return not example.raw["deleted"]
    if example.event == "pull_request":
        changes = example.raw.get("changes", {})
        return action in PULL_REQUEST_ACTIONS and (action != "edited" or "base" in changes)
    if example.event == "repository":
        return action in REPOSITORY_ACTIONS
    return example.event in {"installation", "installation_repositories", "merge_group"}


def test_every_published_webhook_is_understood(hook: Hook, examples: tuple[Example, ...], kept: Intake) -> None:
    """Not one is refused: each is accepted, answered as a ping, or ignored for a reason that fits its kind."""
    assert 329 == len(examples)
    accepted = []
    for example in examples:
        answer = hook.post(example.event, example.raw, example.delivery_id)
        assert 202 == answer.status_code, (example.event, example.raw.get("action"), answer.text)
        body = answer.json()
        if example.event not in WANTED_EVENTS:
            assert "event_unwanted" == body["reason"]
        elif example.event == "ping":
            assert "ping" == body["reason"]
        else:
            assert is_work(example) == (body["status"] == "accepted"), (example.event, body)
        if body["status"] == "accepted":
            accepted.append(example.delivery_id)

    assert sorted(accepted) == sorted(row[0] for row in kept.deliveries("id"))
    assert Counter(
        {"installation": 7, "installation_repositories": 3, "merge_group": 2, "pull_request": 16, "push": 3}
        | {"repository": 9}
    ) == Counter(row[0] for row in kept.deliveries("event"))


def test_each_is_planned_for_whom_it_concerns(hook: Hook, examples: tuple[Example, ...], kept: Intake) -> None:
    """What starts a test on an open pull request is a test; all other work is only told."""
    for example in examples:
        if example.event not in {"pull_request", "push"} or not is_work(example):
            continue
        planned = hook.post(example.event, example.raw, example.delivery_id).json()["planned"]
        assert {"effect": "dispatch", "backend": "org/xpu", "reason": "wanted"} == planned[0]

    told = {row[0]: row[1:] for row in kept.dispatches("delivery_id", "event_type", "purpose", "payload_delivery")}
    assert 19 == len(told)
    for example in examples:
        if example.delivery_id in told:
            starts = example.event == "push" or example.raw["action"] in STARTS
            assert (example.event, "test" if starts else "notify", example.delivery_id) == told[example.delivery_id]


def test_documented_paths_keep_their_values(hook: Hook, examples: tuple[Example, ...], kept: Intake) -> None:
    """What a listener reads is what GitHub sent: value for value, null for null, absent for absent."""
    originals = {}
    for example in examples:
        if example.event in {"pull_request", "push"} and is_work(example):
            hook.post(example.event, example.raw, example.delivery_id)
            originals[example.delivery_id] = example.raw

    payloads = dict(kept.deliveries("id", "payload"))
    assert originals.keys() == payloads.keys()
    for delivery_id, raw in originals.items():
        sent = json.loads(payloads[delivery_id])
        assert {path: at(raw, path) for path in DOCUMENTED} == {path: at(sent, path) for path in DOCUMENTED}
        if "pull_request" in raw:
            names = [{"name": label["name"]} for label in raw["pull_request"]["labels"]]
            assert names == sent["pull_request"]["labels"]


def test_webhooks_of_other_repositories_are_none_of_ours(
    hook: Hook, published: tuple[Example, ...], kept: Intake
) -> None:
    """As published they come from somebody else's repository."""
    for example in published:
        if example.event in {"pull_request", "push"}:
            answer = hook.post(example.event, example.raw, example.delivery_id)
            assert "repository_unwanted" == answer.json()["reason"]

    assert [] == kept.deliveries("id")

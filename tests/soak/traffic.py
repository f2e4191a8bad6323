"""What people do upstream in a week, and when: a day's shape with bursts, and acts chosen by a seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relay.simulator import MergeGroup, PullRequest, Upstream
from relay.simulator.webhooks import Delivery

EVENTS_A_DAY = 700
DAYS = 7
#: Relative traffic by hour, from nine in the morning on: a short piece of the week is a busy one.
_HOURS = (7, 8, 8, 7, 7, 8, 8, 8, 8, 7, 6, 5, 4, 4, 3, 3, 2, 2, 2, 3, 3, 4, 4, 5)
#: Some of what happens comes at once: a stack of pull requests is pushed, a bot labels what came in over night.
_IN_BURSTS = 0.25
_BURST_OF = 8


def moments(seed: int, week_seconds: float) -> tuple[float, ...]:
    """When something happens, in seconds from the start of a week that is this long."""
    chance = random.Random(f"moments {seed}")
    day = week_seconds / DAYS
    found: list[float] = []
    for number in range(DAYS):
        while len(found) < EVENTS_A_DAY * (number + 1):
            hour = chance.choices(range(24), _HOURS)[0]
            at = (number + (hour + chance.random()) / 24) * day
            burst = chance.random() < _IN_BURSTS / _BURST_OF
            found += [at + chance.uniform(0, 0.5) for _ in range(_BURST_OF if burst else 1)]
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class _Kind:
    weight: int
    act: Callable[[], Sequence[Delivery]]


class People:
    """Everybody upstream. Each ``act`` is one thing that somebody does; webhooks go out without being waited for."""

    def __init__(self, upstream: Upstream, seed: int, devices: Sequence[str], backends: Sequence[str]) -> None:
        self._up = upstream
        self._chance = random.Random(f"people {seed}")
        self._devices = devices
        self._backends = backends
        self._open: list[PullRequest] = []
        self._closed: list[PullRequest] = []
        self._heads: dict[int, list[str]] = {}
        self._groups: list[MergeGroup] = []
        self._tags = 0
        self.acts: Counter[str] = Counter()
        self._kinds = {
            "open": _Kind(14, self._opens),
            "push more": _Kind(30, self._pushes_more),
            "force push": _Kind(4, self._forces),
            "label": _Kind(10, self._labels),
            "unlabel": _Kind(3, self._unlabels),
            "close": _Kind(8, self._closes),
            "reopen": _Kind(2, self._reopens),
            "push main": _Kind(12, self._lands),
            "push tag": _Kind(12, self._tags_commit),
            "queue": _Kind(3, self._queues),
            "leave queue": _Kind(3, self._leaves_queue),
            "comment": _Kind(2, self._comments),
        }
        for login, role in (("triager", "triage"), ("writer", "write"), ("contributor", "read")):
            upstream.set_role(login, role)

    def act(self) -> None:
        """Somebody does something."""
        names = list(self._kinds)
        name = self._chance.choices(names, [self._kinds[one].weight for one in names])[0]
        if not self._open and name not in {"open", "push main", "reopen"}:
            name = "open"
        self.acts[name] += 1
        self._kinds[name].act()

    def _files(self) -> dict[str, str | None]:
        chance = self._chance
        paths = [f"{chance.choice(('src/npu', 'src/core', 'docs'))}/{chance.randrange(8)}.py" for _ in range(2)]
        return {path: f"{chance.random()}\n" for path in paths}

    def _any(self) -> PullRequest:
        return self._chance.choice(self._open[-40:])

    def _opens(self) -> Sequence[Delivery]:
        association = self._chance.choice(("MEMBER", "CONTRIBUTOR"))
        base = "release/2.9" if self._chance.random() < 0.05 else "main"
        pr = self._up.open_pull_request(
            title=f"Change {self._chance.randrange(10**6)}",
            body="Why. " * self._chance.randrange(1, 400),
            files=self._files(),
            base=base,
            author_association=association,
            labels=["ciflow/trunk"] if self._chance.random() < 0.2 else [],
        )
        self._open.append(pr)
        self._heads[pr.number] = [pr.head_sha]
        return pr.deliveries

    def _pushes_more(self) -> Sequence[Delivery]:
        pr = self._any()
        deliveries = pr.push(files=self._files())
        self._heads[pr.number].append(pr.head_sha)
        return deliveries

    def _forces(self) -> Sequence[Delivery]:
        """Back to an earlier head, where there is one."""
        pr = self._any()
        earlier = [head for head in self._heads[pr.number] if head != pr.head_sha]
        return pr.force_push(self._chance.choice(earlier)) if earlier else self._pushes_more()

    def _labels(self) -> Sequence[Delivery]:
        names = ("ciflow/trunk", "topic: docs", "Merged", *(f"ciflow/crcr/{device}" for device in self._devices))
        return self._any().label(self._chance.choice(names))

    def _unlabels(self) -> Sequence[Delivery]:
        pr = self._any()
        names = [label.name for label in pr.pull.labels]
        return pr.unlabel(self._chance.choice(names)) if names else self._labels()

    def _closes(self) -> Sequence[Delivery]:
        pr = self._any()
        self._open.remove(pr)
        self._closed.append(pr)
        return pr.close(merged=self._chance.random() < 0.6)

    def _reopens(self) -> Sequence[Delivery]:
        left = [pr for pr in self._closed[-20:] if not pr.pull.merged]
        if not left:
            return self._opens()
        pr = self._chance.choice(left)
        self._closed.remove(pr)
        self._open.append(pr)
        return pr.reopen()

    def _lands(self) -> Sequence[Delivery]:
        ref = "refs/heads/release/2.9" if self._chance.random() < 0.1 else "refs/heads/main"
        return self._up.push(ref, files=self._files(), message="Land")

    def _tags_commit(self) -> Sequence[Delivery]:
        """A label's bot pushes a tag to the very commit of a head."""
        self._tags += 1
        flow = self._chance.choice(("trunk", "inductor", "periodic"))
        return self._up.push_tag(f"ciflow/{flow}/{self._tags}", self._any().head_sha)

    def _queues(self) -> Sequence[Delivery]:
        pr = self._any()
        if pr.pull.base_ref != "main":
            return self._pushes_more()
        group = self._up.add_to_merge_queue(pr)
        self._groups.append(group)
        return group.deliveries

    def _leaves_queue(self) -> Sequence[Delivery]:
        if not self._groups:
            return self._queues()
        group = self._groups.pop(0)
        # A group that GitHub merges is on the newest commit: here others have pushed meanwhile.
        return self._up.destroy_merge_group(group, self._chance.choice(("invalidated", "dequeued")))

    def _comments(self) -> Sequence[Delivery]:
        who = self._chance.choice(("triager", "writer", "contributor", "stranger"))
        backend = self._chance.choice(self._backends)
        words = ("/crcr status", f"/crcr run {backend}", "/crcr rerun", f"/crcr override {backend} ok", "Thanks! @all")
        text = self._chance.choice(words)
        return self._up.comment(self._any(), who, text)

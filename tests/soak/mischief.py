"""What misbehaving backends send beside, or instead of, honest reports, and what each has to be answered."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from relay.simulator import Backend, CallbackAnswer, Run
from tests.soak.fleet import Manner, Member

#: Nobody, or somebody who could not answer: not what is asked about here.
_NO_ANSWER = frozenset({0, 429, 500, 502, 503, 504})
DECOY = "d" * 40
#: A body of nine megabytes, more than is read, and one that is merely long.
_HUGE, _LONG = "x" * 9_000_000, "y" * 20_000


@dataclass(frozen=True, slots=True)
class _Bad:
    what: str
    answers: frozenset[int]
    send: Callable[[], CallbackAnswer]


class Mischief:
    """Sends bad reports from threads of its own. ``wrong`` counts answers that none of them should have got."""

    def __init__(self, members: Mapping[str, tuple[Member, Backend]], seed: int) -> None:
        self._members = members
        self._chance = random.Random(f"mischief {seed}")
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="mischief")
        self.sent: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self._others: list[Run] = []

    def saw(self, member: Member, runs: Sequence[Run]) -> None:
        """These runs began. Some of them are misused."""
        backend = self._members[member.name][1]
        for run in runs:
            if self._chance.random() < 0.1 and member.level != "L1":
                self._others = [*self._others[-20:], run]
            if member.manner in _SENDS and run.jobs and self._chance.random() < 0.3:
                self._pool.submit(self._misuse, member, backend, run)

    def close(self) -> None:
        """Wait for what is under way."""
        self._pool.shutdown()

    def _misuse(self, member: Member, backend: Backend, run: Run) -> None:
        for bad in _SENDS[member.manner](backend, run, self._others):
            answer = bad.send()
            self.sent[bad.what] += 1
            expected = (bad.answers - {200}) | {403} if member.level == "L1" else bad.answers
            if answer.status not in expected | _NO_ANSWER:
                self.wrong[f"{bad.what}: {answer.status} {answer.text[:120]}"] += 1


def _babbles(backend: Backend, run: Run, _others: Sequence[Run]) -> Iterator[_Bad]:
    leg = str(run.jobs[0].id)
    fine = frozenset({200})
    yield _Bad("a report twice", fine, lambda: backend.callback(run, "completed", "success", "x", check_run_id=leg))
    yield _Bad("a report twice", fine, lambda: backend.callback(run, "completed", "success", "x", check_run_id=leg))
    yield _Bad("a contradiction", fine, lambda: backend.callback(run, "completed", "failure", "x", check_run_id=leg))
    yield _Bad("a start after its end", fine, lambda: backend.callback(run, "in_progress", None, "x"))
    refused = frozenset({422})
    yield _Bad("a word that is none", refused, lambda: backend.callback(run, "completed", "sucess", "test"))
    yield _Bad("no conclusion", refused, lambda: backend.callback(run, "completed", None, "test"))
    yield _Bad("no workflow", refused, lambda: backend.callback(run, drop=("workflow",)))
    yield _Bad("a list for a name", refused, lambda: backend.callback(run, "in_progress", None, "t", name=["a"]))


def _lies(backend: Backend, run: Run, others: Sequence[Run]) -> Iterator[_Bad]:
    for other in others[:2]:
        if other.repository.full_name != backend.name:
            yield _Bad(
                "another's dispatch",
                frozenset({403}),
                lambda other=other: backend.callback(other.client_payload, "completed", "success", run_id=run.id),  # type: ignore[misc]
            )
    yield _Bad(
        "another audience",
        frozenset({401}),
        lambda: backend.callback(run, "completed", "success", audience="somebody-else"),
    )
    yield _Bad(
        "a fork's run",
        frozenset({403}),
        lambda: backend.callback(run, "completed", "success", event_name="pull_request"),
    )
    yield _Bad("no token", frozenset({401}), lambda: backend.callback(run, "completed", "success", token="none"))
    relay = {**run.client_payload.get("relay", {}), "token": "forged"}
    yield _Bad(
        "a forged capability",
        frozenset({403, 404, 422}),
        lambda: backend.callback(run, "completed", "success", change={"relay": relay}),
    )
    elsewhere = {"pull_request": {"head": {"sha": DECOY}, "number": 1}, "after": DECOY}
    # What a body says of the commit is an echo that nobody reads.
    yield _Bad(
        "another commit",
        frozenset({200}),
        lambda: backend.callback(run, "completed", "success", "test", change={"payload": elsewhere}),
    )


def _floods(backend: Backend, run: Run, _others: Sequence[Run]) -> Iterator[_Bad]:
    yield _Bad(
        "a huge body",
        frozenset({413, 422}),
        lambda: backend.callback(run, "completed", "success", "test", notes=_HUGE),
    )
    tests = [{"name": f"test_{n}", "classname": "c", "message": _LONG, "stacktrace": ""} for n in range(5)]
    yield _Bad(
        "long messages",
        frozenset({200}),
        lambda: backend.callback(run, "completed", "failure", "test", failed_tests=tests),
    )


_SENDS: Mapping[Manner, Callable[[Backend, Run, Sequence[Run]], Iterator[_Bad]]] = {
    Manner.BABBLES: _babbles,
    Manner.LIES: _lies,
    Manner.FLOODS: _floods,
}

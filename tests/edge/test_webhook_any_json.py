"""No body, however strange, is our fault: every answer is a 2xx or a 4xx that says why."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.store.engine import Store
from tests.edge.hook import Hook
from tests.relay.bodies import pull_request, push
from tests.relay.planning import EVERY, NPU, PATHS, PICKY, XPU

pytestmark = pytest.mark.slow

INSTALLATION = {
    "action": "created",
    "installation": {"id": 1, "app_id": 4, "account": {"login": "org"}},
    "repositories": [{"id": 1, "full_name": "org/xpu"}],
}
BODIES = (
    ("pull_request", pull_request()),
    ("pull_request", pull_request("labeled") | {"label": {"name": "test me"}}),
    ("pull_request", pull_request("synchronize") | {"before": "1" * 40, "after": "2" * 40}),
    ("push", push()),
    ("ping", {"hook": {"id": 1, "events": ["push"]}}),
    ("installation", INSTALLATION),
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["a" * 40, "refs/heads/main", "up/stream", "\x00", "2026-11-30T10:00:00Z", "9" * 5000])
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner))


@pytest.fixture(scope="module")
def hook(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hook]:
    """One edge for all examples; what one leaves behind the next may meet."""
    path = tmp_path_factory.mktemp("any") / "relay.db"
    shutil.copy(sqlite_template, path)
    store = Store(f"sqlite:///{path}")
    yield Hook(store, (XPU, EVERY, NPU, PATHS, PICKY), datetime(2026, 11, 30, tzinfo=UTC))
    store.close()


@pytest.fixture(scope="module")
def deliveries() -> Iterator[int]:
    """Numbers for delivery ids, so that no example is taken for another's redelivery."""
    return count()


def paths_of(raw: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a value could be exchanged."""
    inner = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for key, value in inner:
        yield (*prefix, key)
        yield from paths_of(value, (*prefix, key))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), value=VALUES)
def test_any_value_in_any_place_is_accepted_or_refused(
    hook: Hook, deliveries: Iterator[int], data: st.DataObject, value: Any
) -> None:
    """What is accepted is stored and planned for; so whatever gets through the parser must be fit for the store."""
    event, raw = data.draw(st.sampled_from(BODIES))
    raw = copy.deepcopy(raw)
    *parents, last = data.draw(st.sampled_from(list(paths_of(raw))))
    place: Any = raw
    for part in parents:
        place = place[part]
    place[last] = value

    answer = hook.post(event, raw, f"D{next(deliveries)}")

    assert answer.status_code in {202, 422}, answer.text
    assert answer.json()


@settings(max_examples=100, deadline=None)
@given(body=st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_answered(hook: Hook, body: bytes) -> None:
    """Signed is not the same as sane."""
    answer = hook.post("pull_request", body)

    assert answer.status_code in {202, 400, 422}, answer.text

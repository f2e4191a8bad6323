"""What the service says of its API holds: schemathesis tries to find an answer that its OpenAPI does not describe."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from relay.edge.health import Build, Part, health_router
from relay.metrics import Metrics
from relay.store.engine import Store
from tests.conftest import Clock
from tests.edge.shown import Shown, history

#: Requests of each operation and mode: enough to meet every parameter, few enough to take seconds.
EXAMPLES = 25

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]


@pytest.fixture(scope="session")
def api_schema(
    sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[schemathesis.schemas.BaseSchema]:
    """The API over a record with something of everything, and the health endpoints beside it."""
    path = tmp_path_factory.mktemp("schemathesis") / "relay.db"
    shutil.copy(sqlite_template, path)
    store = Store(f"sqlite:///{path}")
    shown = Shown(store, Clock(datetime(2026, 11, 30, 12, 0, tzinfo=UTC)))
    history(shown)

    async def parts() -> tuple[Part, ...]:
        return (Part("database", well=True, detail="there"),)

    async def build() -> Build:
        return Build("1", None, "d1", "0001")

    async def gauge() -> None:
        return None

    shown.app.include_router(health_router(parts=parts, build=build, gauge=gauge, metrics=Metrics()))
    yield schemathesis.openapi.from_asgi("/api/v1/openapi.json", shown.app)
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_answer_is_one_that_the_description_names(
    api_schema: schemathesis.schemas.BaseSchema, mode: GenerationMode
) -> None:
    """Status, media type and body, for what may be asked and for what may not."""
    asked = set()
    for result in api_schema.get_all_operations():
        operation = result.ok()
        if mode is GenerationMode.NEGATIVE and not list(operation.iter_parameters()):
            continue  # What takes no parameters cannot be asked wrongly.

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=CHECKS)

        ask()
        asked.add(operation.path)

    assert {"/api/v1/changes", "/api/v1/changes/{change_id}", "/api/v1/why"} <= asked
    assert (mode is GenerationMode.POSITIVE) == ("/readyz" in asked)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "parameters", "query"),
    [
        ("/api/v1/changes", {}, {"limit": 3}),
        ("/api/v1/changes/{change_id}", {"change_id": 7}, {}),
        ("/api/v1/backends", {}, {}),
        ("/api/v1/backends/{owner}/{repo}", {"owner": "org", "repo": "npu"}, {}),
        ("/api/v1/deliveries", {}, {}),
        ("/api/v1/deliveries/{delivery_id}", {"delivery_id": "w38"}, {}),
        ("/api/v1/dead-letters", {}, {}),
        ("/api/v1/why", {}, {"pull": 4711, "backend": "org/npu"}),
        ("/api/v1/allowlist", {}, {}),
    ],
)
def test_what_is_there_is_told_as_described(
    api_schema: schemathesis.schemas.BaseSchema, path: str, parameters: dict[str, object], query: dict[str, object]
) -> None:
    """Made-up ids meet nothing, so that each description is also held against an answer with everything in it."""
    case = api_schema[path]["GET"].Case(path_parameters=parameters, query=query)

    answer = case.call_and_validate(checks=CHECKS)

    assert 200 == answer.status_code

"""The HUD sink: the body as PROTOCOL 5 has it, and what each of its answers means."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from httpx2 import ConnectError, MockTransport, Request, Response

from relay.github.http import new_http_client
from relay.hud import ForwardFacts, HudClient, HudRefusedError, HudRetryError, build_body

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
FACTS = ForwardFacts(
    report_id=1,
    repo="org/l2",
    level="L2",
    queue_seconds=180.5,
    execution_seconds=None,
    body='{"event_type":"pull_request","workflow":{"name":"é"}}',
)


@pytest.fixture
def anyio_backend() -> str:
    """The service runs on asyncio."""
    return "asyncio"


async def forward(*answers: Response | Exception) -> list[Request]:
    """Forward one report to a HUD that answers so; the requests that it saw."""
    seen: list[Request] = []
    left = list(answers)

    def answer(request: Request) -> Response:
        seen.append(request)
        said = left.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    async with new_http_client(user_agent="test", transport=MockTransport(answer)) as http:
        await HudClient(http, url="https://hud.example/api/", key="secret", now=lambda: NOW).forward(FACTS)
    return seen


def test_what_we_verified_stands_apart_from_what_was_said() -> None:
    """The whole body, as it is."""
    assert {
        "trusted": {
            "ci_metrics": {"queue_time": 180.5, "execution_time": None},
            "verified_repo": "org/l2",
            "downstream_repo_level": "L2",
        },
        "untrusted": {"callback_payload": {"event_type": "pull_request", "workflow": {"name": "é"}}},
    } == json.loads(build_body(FACTS))


async def test_one_post_with_the_key_and_nothing_is_repeated() -> None:
    """Where it goes and what it carries."""
    (request,) = await forward(Response(201))

    assert ("POST", "https://hud.example/api/crcr/results") == (request.method, str(request.url))
    assert ("secret", "application/json") == (
        request.headers["x-hud-internal-bot"],
        request.headers["content-type"],
    )
    assert build_body(FACTS) == request.content


@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [
        (500, {}, None),
        (503, {"Retry-After": "120"}, timedelta(seconds=120)),
        (429, {"Retry-After": "Mon, 30 Nov 2026 12:05:00 GMT"}, timedelta(minutes=5)),
        (429, {}, None),
        (408, {"Retry-After": "0"}, timedelta(seconds=1)),
        (502, {"Retry-After": "99999999999999"}, timedelta(hours=24)),
        (502, {"Retry-After": "soon"}, None),
        (502, {"Retry-After": "²"}, None),
    ],
)
async def test_a_hud_that_cannot_now_is_asked_again(
    status: int, headers: dict[str, str], wait: timedelta | None
) -> None:
    """When it says when, not before; and never more than a day away."""
    with pytest.raises(HudRetryError) as retry:
        await forward(Response(status, headers=[(k.encode(), v.encode()) for k, v in headers.items()]))

    assert (None if wait is None else NOW + wait) == retry.value.retry_at
    assert str(status) in str(retry.value)


@pytest.mark.parametrize("error", [ConnectError("refused"), TimeoutError(), ConnectionResetError()])
async def test_a_hud_that_does_not_answer_is_asked_again(error: Exception) -> None:
    """Whatever broke on the way."""
    with pytest.raises(HudRetryError, match="did not answer"):
        await forward(error)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422])
async def test_a_refusal_is_final_and_says_why(status: int) -> None:
    """The reason is kept, and nothing that looks like a secret in it."""
    with pytest.raises(HudRefusedError, match=f"answered {status}: no field x") as refused:
        await forward(Response(status, text="no\nfield x Bearer abc.def"))

    assert "abc.def" not in str(refused.value)
    of_the_report = status in {400, 413, 422}
    assert ("hud_refused_report" if of_the_report else "hud_refused") == refused.value.reason

"""GitHub's rate limits, kept per installation.

Primary limit: https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api#primary-rate-limit-for-github-app-installations
Secondary limits: https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits

The primary limit, 100 requests at once and 900 points a minute are in force from the start: an installation belongs to
one account, so a fan-out to 200 backends of 200 owners spends 5 points of each. The 80 contents a minute are in force
too and count what GitHub's pages mark as creating content (comments). Calls by the app itself (JWT) have a
budget of their own for the primary limit and no points, since GitHub documents none for them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from relay.simulator.exchange import Refused
from relay.simulator.model import Installation

ANONYMOUS = "anonymous"


#: After so long an answer has reached its caller, however busy this machine is.
HEARD_SECONDS = 0.5


@dataclass(frozen=True)
class _Told:
    until: float
    at: float


@dataclass
class _Window:
    began: float = 0.0
    used: int = 0

    def at(self, now: float, length: float) -> _Window:
        if now - self.began >= length or now < self.began:
            self.began, self.used = now, 0
        return self


class Limits:
    """The budgets and what of them is enforced; each flag may be switched at any time.

    ``hits`` counts the refusals by name, ``early`` the requests of callers who had been told to wait and did not, which
    may get an app banned. ``dispatch_unit`` is how a client payload is measured: ``characters``, or
    ``bytes`` for the stricter reading of GitHub's "less than 64KB".
    """

    def __init__(self) -> None:
        self.primary = True
        self.concurrency = True
        self.points = True
        self.content = True
        self.dispatch_unit = "characters"
        self.primary_per_hour: int | None = None
        self.concurrent_at_most = 100
        self.points_per_minute = 900
        self.content_per_minute = 80
        self.content_per_hour = 500
        self.hits: Counter[str] = Counter()
        self.early: Counter[str] = Counter()
        self.most_at_once: Counter[str] = Counter()
        self._told: dict[str, _Told] = {}
        self._at_once: Counter[str] = Counter()
        self._hour: dict[str, _Window] = {}
        self._points: dict[str, _Window] = {}
        self._content: dict[str, _Window] = {}
        self._content_hour: dict[str, _Window] = {}

    def reset(self) -> None:
        """Give every caller a full budget again."""
        self._told.clear()
        for windows in (self._hour, self._points, self._content, self._content_hour):
            windows.clear()

    def budget(self, key: str, installation: Installation | None) -> int:
        """Requests an hour: 5,000, and 50 more for each repository over 20, up to 12,500; 60 without a token."""
        if key == ANONYMOUS:
            return 60
        if self.primary_per_hour is not None:
            return self.primary_per_hour
        count = len(installation.repositories) if installation is not None else 0
        return min(12_500, 5_000 + 50 * max(0, count - 20))

    def enter(self, key: str) -> None:
        """One more request of this caller is being served. ``leave`` must follow, also after a refusal."""
        self._at_once[key] += 1
        self.most_at_once[key] = max(self.most_at_once[key], self._at_once[key])

    def told(self, key: str, refused: Refused, now: float, at: float) -> None:
        """A refusal is being answered. One that names a limit tells its caller to wait.

        ``now`` is the time in this world, ``at`` a clock that nobody can set, in seconds.
        """
        if refused.status not in {403, 429}:
            return
        until = None
        if "retry-after" in refused.headers:
            until = now + int(refused.headers["retry-after"])
        elif refused.headers.get("x-ratelimit-remaining") == "0":
            until = float(refused.headers["x-ratelimit-reset"])
        if until is not None:
            self._told[key] = _Told(until, at)

    def comes(self, key: str, now: float, at: float) -> None:
        """A request comes. It is early if its caller must have heard that it should wait for longer."""
        told = self._told.get(key)
        if told is not None and now < told.until and at - told.at > HEARD_SECONDS:
            self.early[key] += 1

    def leave(self, key: str) -> None:
        """The request is over."""
        self._at_once[key] -= 1

    def charge(
        self, key: str, installation: Installation | None, method: str, *, creates_content: bool, now: float
    ) -> dict[str, str]:
        """Count one request and return GitHub's rate headers. Raises Refused when a limit is reached."""
        hour = self._hour.setdefault(key, _Window(now)).at(now, 3600)
        budget = self.budget(key, installation)
        if self.primary and hour.used >= budget:
            self.hits["primary"] += 1
            who = f"installation ID {installation.id}" if installation else "your address"
            raise Refused(
                403, f"API rate limit exceeded for {who}.", headers=rate_headers(budget, hour.used, hour.began)
            )
        if self.concurrency and self._at_once[key] > self.concurrent_at_most:
            self._refuse("concurrency", 60)
        if installation is not None:
            self._spend(key, method, creates_content=creates_content, now=now)
        hour.used += 1
        return rate_headers(budget, hour.used, hour.began)

    def refund(self, key: str) -> None:
        """Take the last request back: a 304 to an authorized conditional request is free.

        https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api#use-conditional-requests-if-appropriate
        """
        self._hour[key].used -= 1

    def used(self, key: str) -> int:
        """Requests counted in this hour."""
        window = self._hour.get(key)
        return window.used if window else 0

    def _spend(self, key: str, method: str, *, creates_content: bool, now: float) -> None:
        # A GET costs 1 point, a write 5.
        # https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api#calculating-points-for-the-secondary-rate-limit
        cost = 1 if method in {"GET", "HEAD", "OPTIONS"} else 5
        minute = self._points.setdefault(key, _Window(now)).at(now, 60)
        if self.points and minute.used + cost > self.points_per_minute:
            self._refuse("points", 60 - (now - minute.began))
        if creates_content and self.content:
            contents = self._content.setdefault(key, _Window(now)).at(now, 60)
            contents_hour = self._content_hour.setdefault(key, _Window(now)).at(now, 3600)
            if contents.used >= self.content_per_minute:
                self._refuse("content", 60 - (now - contents.began))
            if contents_hour.used >= self.content_per_hour:
                self._refuse("content", 3600 - (now - contents_hour.began))
            contents.used += 1
            contents_hour.used += 1
        minute.used += cost

    def _refuse(self, name: str, seconds: float) -> None:
        self.hits[name] += 1
        raise secondary_limit(403, max(1, int(seconds)))


def secondary_limit(status: int, retry_after: int | None) -> Refused:
    """The answer of a secondary limit; without ``retry_after`` the client must wait at least a minute."""
    return Refused(
        status,
        "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
        headers={} if retry_after is None else {"retry-after": str(retry_after)},
    )


def rate_headers(limit: int, used: int, began: float) -> dict[str, str]:
    """The headers that every answer carries.

    https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api#checking-the-status-of-your-rate-limit
    """
    return {
        "x-ratelimit-limit": str(limit),
        "x-ratelimit-remaining": str(max(0, limit - used)),
        "x-ratelimit-used": str(used),
        "x-ratelimit-reset": str(int(began + 3600)),
        "x-ratelimit-resource": "core",
    }

"""Who is calling: an app by its JWT, or an installation by its access token.

https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app/about-authentication-with-a-github-app
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jwt

from relay.simulator.exchange import Call, Refused, Route
from relay.simulator.model import App, Json

if TYPE_CHECKING:
    from relay.simulator.world import World

_RANK = {"read": 1, "write": 2, "admin": 3}


def at_least(granted: dict[str, str], permission: str, access: str) -> bool:
    """Whether granted permissions include this one; write includes read. ``metadata: read`` is always there."""
    if permission == "metadata" and access == "read":
        return True
    return _RANK.get(granted.get(permission, ""), 0) >= _RANK[access]


def credentials(call: Call) -> str | None:
    """The bearer credential, None where there is no Authorization header."""
    header = call.headers.get("authorization")
    if header is None:
        return None
    scheme, _, value = header.partition(" ")
    if scheme.lower() not in {"bearer", "token"} or not value.strip():
        raise Refused(401, "Bad credentials")
    return value.strip()


def identify(world: World, call: Call) -> None:
    """Fill in the call's app or token. Raises Refused (401) for a credential that is not valid now."""
    value = credentials(call)
    if value is None:
        return
    if value.count(".") == 2:
        call.app = app_of(world, value)
        return
    token = world.tokens.get(value)
    # https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app/generating-an-installation-access-token-for-a-github-app
    # An installation access token expires after one hour; one of a removed installation is worth nothing at once.
    if token is None or token.expires_at <= world.seconds() or token.installation.id not in world.installations:
        raise Refused(401, "Bad credentials")
    if token.installation.suspended:
        # https://docs.github.com/en/apps/maintaining-github-apps/suspending-a-github-app-installation
        raise Refused(403, "This installation has been suspended")
    call.token = token


def app_of(world: World, encoded: str) -> App:
    """The app that a JWT speaks for; a token that was verified before is looked up, its expiry is always checked.

    https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app/generating-a-json-web-token-jwt-for-a-github-app
    """
    known = world.verified_jwts.get(encoded)
    if known is None:
        known = _verify(world, encoded)
        world.verified_jwts[encoded] = known
    app, expires = known
    if expires <= world.seconds():
        raise Refused(
            401,
            "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the "
            "assertion expires",
        )
    return app


def _verify(world: World, encoded: str) -> tuple[App, float]:
    unverified: Json
    try:
        unverified = jwt.decode(encoded, options={"verify_signature": False})
    except jwt.PyJWTError as error:
        raise Refused(401, "A JSON web token could not be decoded") from error
    app = world.apps.get(str(unverified.get("iss")))
    if app is None:
        raise Refused(401, "'Issuer' claim ('iss') must be an Integer")
    try:
        claims: Json = jwt.decode(
            encoded,
            app.public_key,
            algorithms=["RS256"],
            options={"verify_exp": False, "verify_iat": False, "verify_nbf": False, "verify_aud": False},
        )
    except jwt.PyJWTError as error:
        raise Refused(401, "A JSON web token could not be decoded") from error
    now = world.seconds()
    issued, expires = claims.get("iat"), claims.get("exp")
    if not isinstance(issued, int | float) or issued > now:
        raise Refused(
            401, "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued"
        )
    if not isinstance(expires, int | float):
        raise Refused(401, "Missing 'Expiration time' claim ('exp')")
    # The expiration time must be no more than 10 minutes into the future; the second allows for rounding.
    if expires > now + 601:
        raise Refused(401, "'Expiration time' claim ('exp') is too far in the future")
    return app, float(expires)


def authorize(call: Call, route: Route) -> None:
    """Check that the caller may use this route. Raises Refused (401, 403, 404)."""
    if route.caller == "app":
        if call.app is None:
            raise Refused(401, "A JSON web token could not be decoded")
        return
    if route.caller == "anyone":
        return
    if call.app is not None:
        raise Refused(401, "Bad credentials")
    repository = call.repository
    if call.token is None:
        # https://docs.github.com/en/rest/authentication/authenticating-to-the-rest-api
        # Public data may be read without a token; anything else asks for one.
        if call.method != "GET" or repository is None:
            raise Refused(401, "Requires authentication")
        if repository.private:
            raise Refused(404, "Not Found")
        return
    if repository is not None and not call.token.covers(repository):
        # https://docs.github.com/en/rest/using-the-rest-api/troubleshooting-the-rest-api#404-not-found-for-an-existing-resource
        raise Refused(404, "Not Found")
    if route.needs is None:
        return
    # A token keeps no more than its installation grants at this moment.
    held = (call.token.permissions, call.token.installation.permissions)
    ways = [way for way in (route.needs, route.or_needs) if way is not None]
    if not any(all(at_least(granted, *way) for granted in held) for way in ways):
        # https://docs.github.com/en/rest/using-the-rest-api/troubleshooting-the-rest-api#resource-not-accessible
        accepted = "; ".join(f"{permission}={access}" for permission, access in ways)
        raise Refused(
            403, "Resource not accessible by integration", headers={"x-accepted-github-permissions": accepted}
        )

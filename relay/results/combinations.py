"""A combination: which backend version, which test suite version, and in what environment a result was made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_DIGITS = 12
_NOWHERE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Combination:
    """What a report states of its combination; None and empty where it states nothing."""

    backend_version: str | None = None
    suite_version: str | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: _NOWHERE)

    @property
    def id(self) -> str:
        """See ``combination_id``."""
        return combination_id(self.backend_version, self.suite_version, self.environment)

    @property
    def environment_json(self) -> str:
        """The environment as it is kept: a JSON object with sorted keys."""
        return _canonical(dict(self.environment))


def combination_id(
    backend_version: str | None, suite_version: str | None, environment: Mapping[str, str] = _NOWHERE
) -> str:
    """12 hexadecimal digits that are equal exactly for equal combinations; "" where nothing is stated.

    They are the start of the SHA-256 of the combination's JSON with sorted keys, no spaces, in UTF-8, absent and empty
    parts left out, so that anybody can compute them.
    """
    stated: dict[str, object] = {}
    if backend_version:
        stated["backend_version"] = backend_version
    if suite_version:
        stated["suite_version"] = suite_version
    if environment:
        stated["environment"] = dict(environment)
    return hashlib.sha256(_canonical(stated).encode()).hexdigest()[:_DIGITS] if stated else ""


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

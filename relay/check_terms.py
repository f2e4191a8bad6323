"""The settings as checks know them: one place, so that the service and its console hold every check to the same."""

from __future__ import annotations

from datetime import timedelta

from relay.settings import Settings
from relay.store.checks import CheckTerms


def terms_of(settings: Settings) -> CheckTerms:
    """What decides which checks are due, and how often and how long, by these settings."""
    return CheckTerms(
        upstream=settings.upstream,
        label_prefix=settings.label_prefix,
        interval=timedelta(seconds=settings.check_interval_seconds),
        per_job=settings.checks == "job",
        group_deadline=timedelta(minutes=settings.merge_group_minutes),
    )

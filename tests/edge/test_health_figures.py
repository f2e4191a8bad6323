"""Whoever asks for one figure again and again pays for one."""

from __future__ import annotations

from relay.metrics import Metrics


def test_only_the_named_series_are_shown() -> None:
    """As other exporters do it: Prometheus's ``name[]``, with the names of series as they stand on the page."""
    metrics = Metrics()

    lines = metrics.render(["crcr_effects_open", "no_such_series"]).decode().splitlines()

    assert ["crcr_effects_open 0.0"] == [line for line in lines if not line.startswith("#")]
    assert len(metrics.render().splitlines()) > 100

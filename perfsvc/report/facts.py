"""What a run tells of a case beside its time, in words and units."""

from perfsvc import units
from perfsvc.report.rows import RunDetails


def facts(of: RunDetails) -> list[tuple[str, str]]:
    """Name and value of all that is known, in the order in which a person asks for it."""
    written = {
        "stopped": of.stopped,
        "noise": _noise(of.noise_within, of.noise_between),
        "bandwidth": of.bandwidth_bytes_per_s and units.rate(of.bandwidth_bytes_per_s),
        "of peak": of.peak_share and units.share(of.peak_share),
        "of reference": of.relative_speed and units.share(of.relative_speed),
        "FLOP/s": of.flops_per_s and units.flop_rate(of.flops_per_s),
        "SM clock": of.sm_clock_hz and units.frequency(of.sm_clock_hz),
        "temperature": of.temperature_c and f"{of.temperature_c:.0f} °C",
        "power": of.power_w and f"{of.power_w:.0f} W",
        "slowdowns": of.slowdowns,
        "rejected": of.rejected_batches and units.count(of.rejected_batches, "batch", "batches"),
        **{name: metric(name, value) for name, value in sorted(of.metrics.items())},
        "note": of.note,
    }
    return [(name, str(value)) for name, value in written.items() if value]


def _noise(within: float | None, between: float | None) -> str:
    levels = (("within replicas", within), ("between them", between))
    return ", ".join(f"{100 * level:.2g} % {name}" for name, level in levels if level is not None)


def metric(name: str, value: float) -> str:
    """A metric in its unit, where its name says which that is."""
    if name.endswith("_s"):
        return units.seconds(value)
    if name.endswith("_cycles"):
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.4g} J" if name.endswith("_j") else f"{value:.4g}"

"""Writes what was measured as a cluster file: `calibration` has the kernels, `collectiveTable` the collectives, and without a base design
the figures that a cluster must have follow from them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any


#: Products of a unit that a curve through them takes at least.
CURVE = 3


def cluster_file(
    calibration: dict[str, Any],
    table: Sequence[dict[str, Any]],
    *,
    base: str | None,
    memory_bytes: int,
    reserved_bytes: int,
    devices_per_host: int,
) -> dict[str, Any]:
    """A cluster file, `base` changed by what was measured, or whole."""
    measured: dict[str, Any] = {"calibration": with_curves(calibration)}
    if table:
        measured["collectiveTable"] = list(table)
    if base is not None:
        return {"base": base, **measured}
    slug = re.sub(r"[^a-z0-9]+", "-", calibration["device"].lower()).strip("-")[:40]
    rate = best_copy(calibration.get("memory", []))
    inside, outside = links(table, "intra"), links(table, "inter")
    assumed = []
    if inside is None:
        inside = outside or {"bytesPerSecond": rate, "latencySeconds": 0.0}
        assumed.append("No link inside a host was measured: collectives go at the rate of copies." if outside is None else "")
    if outside is None:
        outside = inside
        assumed.append("No second host was measured: links between hosts are taken to be those inside one.")
    return {
        "id": f"measured-{slug}",
        "name": f"measured {calibration['device']}",
        "accelerator": slug,
        "peakFlopsPerSecond": best_rates(calibration.get("matmul", {}), calibration.get("attention", [])),
        "matmulCap": 1,
        "memoryBytes": memory_bytes,
        "reservedBytes": reserved_bytes + int(memory_bytes * 0.02),
        "memoryBytesPerSecond": rate,
        "memoryEfficiency": 1,
        "devicesPerHost": devices_per_host,
        "intra": {**inside, "efficiency": 1},
        "inter": {**outside, "efficiency": 1},
        "baseLatencySeconds": 0,
        "sources": {"*": f"measured on {calibration['device']}, {calibration['date']}"},
        "assumptions": [each for each in assumed if each],
        **measured,
    }


def with_curves(calibration: dict[str, Any]) -> dict[str, Any]:
    """Without the products of units that have too few for a curve, which the planner refuses; the notes name those."""
    units: dict[str, Any] = calibration.get("matmul", {})
    few = {unit: len(rows) for unit, rows in units.items() if len(rows) < CURVE}
    if not few:
        return calibration
    said = [f"products in {unit}: {count} measured, a curve takes {CURVE}; its best rate is the peak" for unit, count in few.items()]
    kept = {unit: rows for unit, rows in units.items() if unit not in few}
    return {**calibration, "matmul": kept, "notes": [*calibration.get("notes", []), *said]}


def best_rates(units: dict[str, Any], attention: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The rate of the fastest call by unit, a product or attention; one operation a second of a file that has neither yet.

    Attention counts because a busy machine may slow the products alone, and no call is faster than the peak. Its operations are those
    of every score: two products forward, five backward.
    """
    best: dict[str, float] = {}
    rates = [(unit, 2 * row["m"] * row["k"] * row["n"] / row["seconds"]) for unit, rows in units.items() for row in rows]
    for row in attention:
        scores = row["batch"] * row["heads"] * row["rows"] ** 2
        rates.append((row["unit"], (10 if row["backward"] else 4) * scores * row["channels"] / row["seconds"]))
    for unit, rate in rates:
        best[unit] = max(best.get(unit, 0.0), float(f"{rate:.5g}"))
    return best or {"fp32": 1e9}


def best_copy(rows: Sequence[dict[str, Any]]) -> float:
    """Bytes a second of the largest copies, which no cache holds."""
    rates = [row["bytes"] / row["seconds"] for row in sorted(rows, key=lambda row: row["bytes"])[-2:]]
    return float(f"{max(rates):.5g}") if rates else 1e9


def links(table: Sequence[dict[str, Any]], level: str) -> dict[str, float] | None:
    """Rate and latency of a hop, from the largest and the smallest all_gather of a level; None where there is none."""
    rows = [row for row in table if row["level"] == level and row["collective"] == "all_gather"]
    if not rows:
        return None
    row = min(rows, key=lambda row: row["devices"])
    n = row["devices"]
    # Of an all_gather a rank receives what the others give.
    rate = max((n - 1) * given / seconds for given, seconds in zip(row["bytes"], row["seconds"], strict=True))
    return {"bytesPerSecond": float(f"{rate:.5g}"), "latencySeconds": float(f"{min(row['seconds']) / (n - 1):.4g}")}

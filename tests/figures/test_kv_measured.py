"""Measurements of the running cache as tables and curves: every number as it was measured."""

from __future__ import annotations

from types import SimpleNamespace

from figures import kv_measured
from figures.payload import unpack


def point(kind: str, name: str, size: int, loss: float, divergence: float = 0.5, energy: float | None = None):
    return SimpleNamespace(
        kind=kind,
        name=name,
        cache_bytes=size,
        used_bytes=size,
        expected_bytes=size,
        loss=loss,
        divergence=divergence,
        agreement=0.5,
        energy=energy,
    )


def test_steps_are_lines_by_formula_and_discs_by_count() -> None:
    steps = [
        SimpleNamespace(tokens=n, length=n, capacity=32, used_bytes=n * 64, allocated_bytes=32 * 64) for n in (3, 4)
    ]
    meta, arrays = unpack(kv_measured.steps_payload(steps, lambda context: 64 * context))
    assert [line["discs"] for line in meta["lines"]] == [False, False, True, True]
    assert arrays[3].tolist() == arrays[7].tolist() == [3 * 64 / 1024, 4 * 64 / 1024]
    assert meta["y"]["unit"] == "KiB"
    assert kv_measured.step_rows(steps, lambda context: 64 * context)[1] == [
        "1",
        "4",
        "256",
        "256",
        *["2\u2006048"] * 2,
    ]


def test_the_curve_of_surgery_begins_with_the_original() -> None:
    points = [
        point("loaded", "as loaded", 1000, 2.0, 0.0),
        point("merged", "1 KV head", 500, 3.0),
        point("cut", "rank 8", 250, 2.5, energy=0.75),
    ]
    meta, arrays = unpack(kv_measured.surgery_payload(points))
    assert [line["name"] for line in meta["lines"]] == ["KV heads merged", "rank cut"]
    assert [array.tolist() for array in arrays] == [[50, 100], [3, 2], [25, 100], [2.5, 2]]
    assert meta["limits"] == [[2.0, "as loaded"]]
    rows = kv_measured.surgery_rows(points)
    assert rows[2] == ["rank 8", "250 B", "25.0 %", "2.5000", "0.500", "50.0 %", "0.7500"]
    assert rows[0][-3:] == ["0", "50.0 %", "–"]


def test_formats_that_lose_nothing_are_not_on_a_logarithmic_axis() -> None:
    points = [point("", "full", 1000, 2.0, 0.0), point("", "INT8", 300, 2.0, 0.0), point("", "2 bit", 100, 2.2, 0.1)]
    meta, arrays = unpack(kv_measured.formats_payload(points))
    assert arrays[1].tolist() == [0.1]
    assert meta["x"]["ticks"] == [[1, "2 bit"]]
    assert not meta["lines"][0]["joined"]
    assert kv_measured.format_rows(points)[2][:4] == ["2 bit", "100", "100", "10.0 %"]
    assert unpack(kv_measured.formats_payload(points[:2]))[0]["lines"] == []


def test_saved_in_words() -> None:
    assert kv_measured.saved(4096, 1024) == "4.0 times smaller (3 KiB saved)"
    assert kv_measured.saved(100, 100) == "no smaller"

"""The figures of the page Cost: bars and table from the same numbers, units, times, what fits."""

from __future__ import annotations

import pytest

from figures.cost import (
    COMPONENTS,
    Setting,
    bytes_text,
    costs_payload,
    count_text,
    flops,
    flops_text,
    noticed,
    served,
    storage_of_weights,
    table_payload,
    trained,
)
from figures.cost_twins import counted_tiles, steps_sentence, timed_payload, timed_points
from figures.format import THOUSANDS, group, sig
from figures.payload import unpack
from figures.roofline import (
    BATCHES,
    Timed,
    arithmetic,
    machine_roofline,
    machines_payload,
    seconds_text,
    served_on,
    sweep_payload,
)
from figures.sheet import copied
from lmcore import presets
from lmcore.costs import param_counts, weight_bytes
from lmcore.flops import forward_flops, prefill_flops
from lmcore.hardware import accelerator, custom
from lmcore.roofline import Point, Roof

DEEPSEEK = presets.shipped("deepseek-v3").config
LLAMA = presets.shipped("llama-3.1-8b").config
SETTING = Setting(context=4096, batch=2)


def changed(**fields: object) -> Setting:
    return Setting(**(vars(SETTING) | fields))  # type: ignore[arg-type]


def groups(setting: Setting = SETTING, cfg=DEEPSEEK) -> dict[str, dict]:
    return {each["title"].split(",")[0]: each for each in unpack(costs_payload(cfg, setting))[0]["groups"]}


def test_bars_are_shares_of_the_longest() -> None:
    found = groups()
    assert list(found) == [
        "Training step",
        "Prefill",
        "Decode step",
        "Parameters",
        "Memory to serve",
        "Memory to train",
    ]
    counted = flops(DEEPSEEK, SETTING)["prefill"]
    shares = [counted[name] / max(counted.values()) for name in COMPONENTS]
    assert [part["share"] for part in found["Prefill"]["parts"]] == pytest.approx(shares, abs=5e-5)
    assert found["Parameters"]["value"] == "671.0"
    assert "37.55 billion" in found["Parameters"]["note"]
    assert f"37{THOUSANDS}552{THOUSANDS}282{THOUSANDS}624" in found["Parameters"]["note"]


def test_bars_are_saved_with_every_digit() -> None:
    meta, _ = unpack(costs_payload(DEEPSEEK, changed(macs=True)))
    head, *rows = meta["csv"]
    assert head == ["of", "part", "number"]
    numbers = {(of.split(",")[0], part): int(number) for of, part, number in rows}
    assert numbers["Prefill", "all"] * 2 == sum(prefill_flops(DEEPSEEK, tokens=4096, batch=2).values())
    assert numbers["Parameters", "all"] == param_counts(DEEPSEEK).total
    assert numbers["Memory to serve", "weights"] == weight_bytes(DEEPSEEK, 2)
    assert len(rows) == sum(len(each["parts"]) + 1 for each in meta["groups"])


@pytest.mark.parametrize(
    ("change", "title", "number"),
    [
        ({"macs": True}, "Prefill", "MAC"),
        ({"decimal": True}, "Memory to serve", "TB"),
        ({"attention": "useful"}, "Prefill", None),
        ({"logits": "all"}, "Prefill", None),
        ({"active": "no input table"}, "Parameters", "36.63 billion"),
        ({"recompute": "all"}, "Training step", None),
        ({"scores": "written"}, "Memory to train", "T × T weights"),
        ({"latent": "expanded"}, "Decode step", None),
        ({"weights": "q4_0"}, "Memory to serve", None),
        ({"cache": "q4_0"}, "Memory to serve", None),
    ],
)
def test_every_switch_changes_what_is_printed(change: dict[str, object], title: str, number: str | None) -> None:
    before, after = groups()[title], groups(changed(**change))[title]
    assert before != after
    assert number is None or number in str(after)


def test_the_table_has_every_digit_and_its_totals() -> None:
    meta, _ = unpack(table_payload(DEEPSEEK, SETTING))
    prefill = prefill_flops(DEEPSEEK, tokens=4096, batch=2)
    assert [int(row[2]) for row in copied(meta)[1:]] == [*prefill.values(), sum(prefill.values())]
    assert meta["rows"][-1][2] == group(sum(prefill.values()))
    macs, _ = unpack(table_payload(DEEPSEEK, changed(macs=True)))
    assert int(copied(macs)[-1][2]) * 2 == sum(prefill.values())


@pytest.mark.parametrize(
    ("n", "binary", "decimal"),
    [(85_899_345_920, "80 GiB", "85.9 GB"), (6_710_886_400, "6.25 GiB", "6.71 GB"), (999, "999 B", "999 B")],
)
def test_bytes_in_two_units(n: int, binary: str, decimal: str) -> None:
    assert (bytes_text(n, SETTING), bytes_text(n, changed(decimal=True))) == (binary, decimal)


def test_numbers_with_units() -> None:
    assert flops_text(1_151_600_000_000_000, SETTING) == ("1.152", "PFLOP")
    assert flops_text(1_151_600_000_000_000, changed(macs=True)) == ("575.8", "TMAC")
    assert flops_text(3 * 10**24, SETTING) == ("3.000", "YFLOP")
    assert flops_text(0, SETTING) == ("0", "FLOP")
    assert count_text(266_240) == (f"266{THOUSANDS}240", "")
    assert [seconds_text(s) for s in (2.2e-5, 0.0458, 3.2, 200_000.0)] == ["22.0 µs", "45.8 ms", "3.20 s", "2.31 days"]


def test_bytes_of_weights_by_their_storage() -> None:
    assert served(LLAMA, SETTING)["weights"] == weight_bytes(LLAMA, 2)
    assert served(LLAMA, changed(weights="fp8"))["weights"] == param_counts(LLAMA).total
    assert storage_of_weights("float32") == (4, None)
    small = served(LLAMA, changed(weights="q4_0"))["weights"]
    outside = 2 * (param_counts(LLAMA).embedding + param_counts(LLAMA).head)
    assert (
        outside + 0.28 * (weight_bytes(LLAMA, 2) - outside)
        < small
        < outside + 0.29 * (weight_bytes(LLAMA, 2) - outside)
    )
    assert sum(trained(LLAMA, SETTING).values()) > 16 * param_counts(LLAMA).total


def test_what_is_noticed_is_computed() -> None:
    first, second, third = noticed(LLAMA, SETTING)
    assert f"26{THOUSANDS}625 tokens in a prefill" in first
    assert "512 MiB; the weights take 29.9 times as much" in second
    assert "no less than the weights" in noticed(LLAMA, changed(context=2**18))[1]
    assert third == f"The config is made for 131{THOUSANDS}072 positions."
    assert noticed(LLAMA, changed(context=2**17))[2] == third
    assert "This context is longer" in noticed(LLAMA, changed(context=2**18))[2]
    assert "Windows keep" in noticed(presets.shipped("mistral-7b-v0.1").config, changed(attention="useful"))[0]


def test_time_on_a_machine_is_the_larger_bound() -> None:
    machine = custom(memory_gb=24, gb_per_s=1000, tflops=100)
    found = served_on(LLAMA, SETTING, machine, 1)
    assert found.next_s == pytest.approx(max(found.decode.flops / 1e14, found.decode.bytes / 1e12))
    assert found.tokens_per_s == pytest.approx(2 / found.next_s)
    assert found.decode.bound(found.roof) == "memory"
    assert found.prefill.bound(found.roof) == "arithmetic"
    twice = served_on(LLAMA, SETTING, machine, 2)
    assert twice.first_s == pytest.approx(found.first_s / 2)
    assert twice.memory_bytes == 2 * found.memory_bytes
    # 8 KV heads on 16 ranks are held twice
    assert served_on(LLAMA, SETTING, machine, 16).decode.bytes > served_on(LLAMA, SETTING, machine, 8).decode.bytes


def test_products_use_a_dtype_that_the_machine_has() -> None:
    assert arithmetic("16 bit", accelerator("T4")) == "float16"
    assert arithmetic("fp8", accelerator("H100 SXM")) == "fp8"
    assert arithmetic("fp8", accelerator("A100 40 GB")) == "bfloat16"
    assert arithmetic("q4_0", accelerator("H100 SXM")) == "bfloat16"
    assert arithmetic("float32", accelerator("A10")) == "float32"


def test_machines_in_rows_with_the_chosen_one_marked() -> None:
    meta, _ = unpack(machines_payload(LLAMA, SETTING, accelerator("L4"), 1))
    head, *rows = copied(meta)
    exact = dict(zip(head, rows[meta["marked"]], strict=True))
    found = served_on(LLAMA, SETTING, accelerator("L4"), 1)
    assert float(exact["each next token, s"]) == pytest.approx(found.next_s, rel=1e-5)
    assert (exact["machine"], exact["decode bound by"], exact["dtype"]) == ("L4", "memory", "bfloat16")
    assert exact["bytes needed"] == str(found.needed_bytes)
    assert meta["rows"][meta["marked"]][0] == "L4"
    by_name = {row[0]: row for row in meta["rows"]}
    assert by_name["H100 SXM"][-1].startswith("yes")
    assert by_name["T4"][-1].startswith("no")
    assert by_name["Apple M4 Max"][4] == "not known"
    own, _ = unpack(machines_payload(LLAMA, SETTING, custom(memory_gb=1, gb_per_s=1, tflops=1), 1))
    assert (own["marked"], own["rows"][0][0]) == (0, "custom")


def test_rings_lie_on_the_roof() -> None:
    meta, arrays = unpack(machine_roofline(DEEPSEEK, SETTING, accelerator("H100 SXM"), 8))
    roof = Roof(meta["roofs"][0]["peak"], meta["roofs"][0]["bandwidth"])
    assert [point["name"] for point in meta["points"]] == ["prefill", "decode"]
    for point in meta["points"]:
        assert point["y"] == roof.attainable(point["x"])
        assert f"{point['name']} at {sig(point['x'])} FLOPs a byte" in meta["label"]
        assert meta["x"][0] < point["x"] < meta["x"][1]
        assert meta["y"][0] < point["y"] < meta["y"][1]
    assert len(arrays[0]) == len(BATCHES)
    assert arrays[0][-1] > arrays[0][0]


def test_more_sequences_give_more_tokens_and_each_fewer() -> None:
    _, (batches, together, _, each) = unpack(sweep_payload(LLAMA, SETTING, accelerator("L4"), 1, "batch"))
    assert tuple(batches) == BATCHES
    assert all(together[k + 1] > together[k] and each[k + 1] < each[k] for k in range(len(BATCHES) - 1))
    meta, arrays = unpack(sweep_payload(LLAMA, SETTING, accelerator("L4"), 1, "context"))
    assert meta["current"] == 4096
    assert arrays[1][-1] < arrays[1][0]


def test_a_small_model_on_a_machine_without_a_peak_is_drawn() -> None:
    meta, _ = unpack(machine_roofline(presets.shipped("gpt2").config, SETTING, accelerator("Apple M4 Max"), 1))
    assert meta["roofs"][0]["peak"] is None


def test_tiles_of_what_was_counted() -> None:
    formula = forward_flops(LLAMA, tokens=9)
    counted = {
        "projections": formula["projections"],
        "attention products": formula["scores"] + formula["mix"],
        "ffn": formula["ffn"] + 2,
        "logits": formula["logits"],
    }
    tiles = {tile["name"]: tile for tile in counted_tiles(LLAMA, 9, 2, counted=counted, cache_bytes=9 * 131_072)}
    assert [name for name, tile in tiles.items() if tile["state"] == "unequal"] == ["Feed-forward"]
    assert tiles["KV cache"]["state"] == "equal"


def test_a_step_that_differs_from_the_formula_is_named() -> None:
    right = [(length, 8 * length, 8 * length, 80, 80) for length in range(3, 8)]
    assert "equal the formula at each of 5 lengths, from 3 to 7 positions" in steps_sentence(right)
    assert "At 5 positions the cache uses 48 B, by formula 40 B." in steps_sentence([*right[:2], (5, 48, 40, 80, 80)])


def test_discs_lie_where_the_clock_puts_them() -> None:
    roof, forward = Roof(100.0, 10.0), Timed("decode", Point(flops=50, bytes=50), 10.0)
    meta, _ = unpack(timed_payload("this cpu", roof, [forward]))
    ring, disc = meta["points"]
    assert (ring["y"], ring["timed"]) == (10.0, False)
    assert (disc["y"], disc["timed"]) == (5.0, True)
    assert "2.00 times" in timed_points(roof, [forward])[0]
    assert "bound by memory" in timed_points(roof, [forward])[0]

"""Curves over positions and what the losses say: payloads hold the numbers, sentences follow from them."""

from __future__ import annotations

import numpy as np
import pytest

from figures.extrapolation import (
    Curve,
    Merit,
    attention_said,
    blame_said,
    by_merit,
    curves_payload,
    doublings,
    encodings_said,
    merit_payload,
    own_said,
    scalings_said,
)
from figures.payload import unpack
from figures.sheet import copied

X = np.array([16.0, 48.0, 80.0])


def curve(name: str, y: list[float], colour: int = 0) -> Curve:
    return Curve(name, colour, X[: len(y)], np.array(y), np.full(len(y), 0.1))


def row(name: str, within: float, beyond: float, pieces: float = 3.0) -> Merit:
    return Merit(name, within, beyond, pieces, 0.01)


ENDS = Merit("Learned", 3, np.nan, 3.2, np.nan)


def said(points: list[str]) -> str:
    return " ".join(points)


def test_a_payload_holds_every_number_of_every_line() -> None:
    blob = curves_payload(
        [curve("a", [1, 2, 3]), curve("b", [4, 5], 9)],
        file="f",
        label="l",
        x_title="x",
        y_title="y",
        verticals=((32, "here"),),
    )
    meta, arrays = unpack(blob)
    assert [line["name"] for line in meta["lines"]] == ["a", "b"]
    assert all(line["colour"] < 8 for line in meta["lines"])
    assert meta["verticals"] == [[32.0, "here"]]
    assert [array.tolist() for array in arrays[:3]] == [[16, 48, 80], [1, 2, 3], [0.1, 0.1, 0.1]]
    assert arrays[4].tolist() == [4, 5]


def test_curves_over_other_positions_are_refused() -> None:
    other = Curve("b", 1, X + 1, X, X)
    with pytest.raises(ValueError, match="'b'"):
        curves_payload([curve("a", [1, 2, 3]), other], file="f", label="l", x_title="x", y_title="y")


def test_ticks_double() -> None:
    assert doublings(128, 1024) == [128, 256, 512, 1024]
    assert doublings(128, 100) == [128]


def test_the_table_is_in_order_of_merit_and_names_what_stops() -> None:
    rows = [row("worse", 3, 5), ENDS, row("better", 3.5, 4)]
    assert [one.name for one in by_merit(rows)] == ["better", "worse", "Learned"]
    meta, _ = unpack(merit_payload([*rows, row("even", 3, 6.001, 6)], label="l", file="f"))
    assert meta["rows"][0] == ["better", "3.50", "4.00", "3.00", "+1.00"]
    assert meta["rows"][2] == ["even", "3.00", "6.00", "6.00", "0.00"]
    assert meta["rows"][-1] == ["Learned", "3.00", "stops", "3.20", ""]
    assert copied(meta)[3] == ["even", "3", "6.001", "6", str(6.001 - 6)]
    assert copied(meta)[-1] == ["Learned", "3", "stops", "3.2", ""]


def test_encodings_are_told_by_their_numbers() -> None:
    rows = [row("RoPE", 3, 5), row("ALiBi", 2.5, 3.01), ENDS]
    text = said(encodings_said(rows, times=8))
    assert "**RoPE** suffers most: 5.00 nats beyond" in text
    assert "and 3.00 for the same tokens in pieces" in text
    assert "standard errors: **ALiBi** (+0.01)." in text
    assert "**Learned** ends" in text
    text = said(encodings_said([row("RoPE", 3, 2.5), row("ALiBi", 3, 5)], times=8))
    assert "**ALiBi** suffers most" in text
    assert "standard errors: **RoPE** (−0.50)." in text
    assert "No encoding loses" in said(encodings_said([row("RoPE", 3, 2.5)], times=8))


def test_scalings_are_told_in_order_of_merit() -> None:
    rows = [row("unscaled", 3, 5), row("linear", 3.5, 4), row("YaRN", 3.1, 3.4)]  # in pieces: 3
    text = said(scalings_said(rows, plain="unscaled", factor=8, length=1024))
    assert "YaRN 3.40 < linear 4.00 < unscaled 5.00" in text
    assert "**YaRN** takes 1.60 of the 2.00 nats" in text
    assert "**linear** costs most: +0.50" in text
    text = said(scalings_said([row("unscaled", 3, 2.9), row("YaRN", 3, 3.4)], plain="unscaled", factor=8, length=1024))
    assert "takes" not in text
    assert "costs" not in text
    noise = scalings_said([row("unscaled", 3, 3.01), row("YaRN", 3, 3.0)], plain="unscaled", factor=8, length=1024)
    assert "takes" not in said(noise)


@pytest.mark.parametrize(
    ("slow", "fast", "words"),
    [(3.5, 6.0, "slow pairs are to blame"), (3.5, 4.5, "carry more"), (5.5, 6.0, "not what the loss comes from")],
)
def test_blame_follows_the_ablation(slow: float, fast: float, words: str) -> None:
    text = said(blame_said(unscaled=5, slow=slow, fast=fast, both=4, n_slow=10, n_pairs=16, factor=8))
    assert words in text
    assert "10 slow pairs of 16" in text
    assert "6 fast" in text


def test_attention_is_told_from_the_end_of_the_trained_length_on() -> None:
    entropy = [curve("RoPE", [1, 2, 4]), curve("ALiBi", [1, 2, 2.1])]
    first = [curve("RoPE", [0.9, 0.5, 0.1]), curve("ALiBi", [0.9, 0.2, 0.19])]
    text = said(attention_said(entropy, first, trained=64))
    assert "spreads most in **RoPE**: its entropy goes from 2.00" in text
    assert "to 4.00" in text
    assert "**RoPE** gives the first token most within the trained length, 0.500" in text
    assert "only 0.100" in text


def test_the_loaded_models_loss_is_told_within_and_beyond() -> None:
    losses = np.full((2, 32), 2.0, np.float32)
    losses[:, 16:] = 3.0
    losses[:, 0] = np.nan
    assert "from position 8 to 15, 3.000 beyond (+1.00)" in own_said("as it is", losses, 16)
    assert "over 32 positions" in own_said("as it is", losses, 64)

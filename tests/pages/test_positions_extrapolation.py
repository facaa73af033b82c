"""Past the trained length: what the page shows is what lmcore measures, and the claims of its pictures hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from figures.payload import unpack
from figures.sheet import copied
from lmcore import teaching
from lmcore.checkpoint import load_pretrained
from lmcore.errors import Cancelled, CapacityError
from lmcore.extrapolate import beyond, blocks, token_losses, windows
from tests.lmcore.family_models import VARIANTS, build
from tests.pages.test_every_page import open_page
from ui import encodings, extrapolating, models, own_length, state
from ui.extrapolating import NAMES, Wanted
from ui.own_length import Asked

FACTOR = 8


@pytest.fixture(scope="module", autouse=True)
def fewer_windows() -> Iterator[None]:
    """Half the windows of the page: what is claimed must show in them, and a test has no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extrapolating, "WINDOWS", 3)
        patch.setattr(extrapolating, "READ_WINDOWS", 1)
        yield


@pytest.fixture(scope="module")
def losses() -> dict[str, np.ndarray]:
    """Everything measured once, by name; the encodings by their titles."""
    extrapolating.measure(extrapolating.everything(FACTOR), lambda line: True)
    wanted = [*extrapolating.encodings(), *extrapolating.scalings(FACTOR), *extrapolating.ablations(FACTOR)]
    wanted += [extrapolating.in_pieces(one) for one in extrapolating.encodings()]
    found = {one.name: extrapolating.losses(one) for one in wanted}
    return {name: array for name, array in found.items() if array is not None}


def rise(losses: dict[str, np.ndarray], name: str, model: str | None = None) -> np.ndarray:
    """Each window's loss beyond the trained length, over that of the same tokens in pieces of it."""
    pieces = losses[f"{model or name} in pieces of {teaching.CONTEXT}"]
    return beyond(losses[name], teaching.CONTEXT) - beyond(pieces, teaching.CONTEXT)


def positions(**link: str) -> AppTest:
    at = open_page("positions", **{"prompt": "abc", **link})
    assert not at.exception
    assert [e.value for e in at.error] == []
    return at


def drawn(at: AppTest, name: str) -> list[tuple[dict[str, Any], list[np.ndarray]]]:
    found = [e for e in at.get("bidi_component") if e.proto.component_name.endswith(f"glassbox_{name}")]
    return [unpack(e.proto.bytes) for e in found]


def chart(at: AppTest, label: str) -> tuple[dict[str, Any], list[np.ndarray]]:
    return next(one for one in drawn(at, "curves") if one[0]["label"] == label)


def words(at: AppTest) -> str:
    return " ".join(element.value for element in at.markdown).replace("\u2006", "").replace("\u2060", "")


def test_all_is_shipped_and_measured(losses: dict[str, np.ndarray]) -> None:
    assert len(losses) == 2 * len(extrapolating.ENCODINGS) + len(NAMES) + 2
    assert extrapolating.missing(extrapolating.everything(FACTOR)) == []
    for name, array in losses.items():
        assert np.isfinite(array[:, 1:]).all(), name


def test_the_losses_are_lmcores(losses: dict[str, np.ndarray]) -> None:
    loaded = load_pretrained("teaching:rope-gqa", dtype="float32", device="cpu")
    assert loaded.tokenizer is not None
    texts = windows(loaded.tokenizer.encode(teaching.heldout_text()), extrapolating.LENGTH, extrapolating.WINDOWS)
    np.testing.assert_allclose(losses["unscaled"][:1], token_losses(loaded.model, texts[:1]), atol=1e-4)


def test_rope_rises_beyond_its_trained_length_and_alibi_holds(losses: dict[str, np.ndarray]) -> None:
    assert (rise(losses, "RoPE") > 0.3).all()
    assert (np.abs(rise(losses, "ALiBi")) < 0.1).all()


def test_learned_positions_stop(losses: dict[str, np.ndarray]) -> None:
    assert losses["Learned"].shape[1] == teaching.CONTEXT


def test_the_slow_pairs_are_to_blame(losses: dict[str, np.ndarray]) -> None:
    plain, slow, fast = (
        beyond(losses[name], teaching.CONTEXT) for name in ("unscaled", extrapolating.SLOW, extrapolating.FAST)
    )
    assert (slow < plain).all()
    assert (plain - slow).mean() > 0.5 * rise(losses, "unscaled", "RoPE").mean()
    assert (fast > slow).all()


def test_scalings_that_slow_the_slow_pairs_alone_beat_the_others(losses: dict[str, np.ndarray]) -> None:
    means = {kind: beyond(losses[name], teaching.CONTEXT).mean() for kind, name in NAMES.items()}
    by_parts = {kind: means.pop(kind) for kind in ("yarn", "llama3", "longrope")}
    assert max(by_parts.values()) + 0.2 < min(means.values())
    assert means["ntk"] + 0.1 < means["none"]


def test_before_anything_is_measured_there_is_a_button_and_no_chart() -> None:
    at = positions(positions_extend="2")
    assert any(button.label.startswith("Measure") for button in at.button)
    assert "loss by position, rope" not in " ".join(meta["label"] for meta, _ in drawn(at, "curves")).lower()


def test_the_charts_hold_what_was_measured(losses: dict[str, np.ndarray]) -> None:
    at = positions()
    assert not any(button.label.startswith("Measure ") for button in at.button)
    for label, wanted, ends in (
        ("Loss by position, each position encoding", extrapolating.encodings(), ["RoPE in pieces"]),
        ("Loss by position, RoPE under each scaling", extrapolating.scalings(FACTOR), ["in pieces"]),
    ):
        meta, arrays = chart(at, label)
        values = np.concatenate(arrays[1::3])
        assert meta["log"] == (values.max() > 3 * values.min()) == meta["y_title"].endswith("log scale")
        assert [line["name"] for line in meta["lines"]] == [one.name for one in wanted] + ends
        assert meta["verticals"][0][0] == teaching.CONTEXT
        for index, one in enumerate(wanted):
            smooth = blocks(losses[one.name], 32)
            for array, expected in zip(arrays[3 * index : 3 * index + 3], smooth, strict=True):
                np.testing.assert_allclose(array, expected)


def test_the_order_of_merit_is_that_of_the_losses(losses: dict[str, np.ndarray]) -> None:
    text = words(positions())
    means = {name: float(beyond(losses[name], teaching.CONTEXT).mean()) for name in NAMES.values()}
    ordered = sorted(means, key=lambda name: means[name])
    assert " < ".join(f"{name} {means[name]:.2f}" for name in ordered) in text
    assert means["unscaled"] == max(means.values()) or f"**{ordered[0]}** takes" in text


def test_the_tables_hold_the_losses_and_what_the_length_costs(losses: dict[str, np.ndarray]) -> None:
    sheets = [meta for meta, _ in drawn(positions(), "sheet")]
    assert [sheet["file"] for sheet in sheets] == ["encodings", "scalings"]
    for sheet in sheets:
        for name, _, past, _, rises in copied(sheet)[1:]:
            if name == "Learned":
                assert (past, rises) == ("stops", "")
                continue
            model = "RoPE" if name in NAMES.values() else None
            assert float(past) == pytest.approx(beyond(losses[name], teaching.CONTEXT).mean())
            assert float(rises) == pytest.approx(rise(losses, name, model).mean(), abs=1e-6)


def test_attention_is_drawn_by_position(losses: dict[str, np.ndarray]) -> None:
    meta, arrays = chart(positions(), "entropy of a row of weights, nats")
    wanted = extrapolating.readings(FACTOR)
    assert [line["name"] for line in meta["lines"]] == [*(one.name for one in wanted), "uniform"]
    reading = extrapolating.reading(wanted[0])
    assert reading is not None
    np.testing.assert_allclose(arrays[1], blocks(reading.entropy.mean(0)[None].astype(np.float32), 32).mean)
    assert (arrays[1] < arrays[-2]).all()


def test_a_measurement_stops_when_nobody_wants_it_and_keeps_what_it_has() -> None:
    one, other = Wanted("a", "draft", length=130), Wanted("b", "draft", length=140)
    with pytest.raises(Cancelled):
        extrapolating.measure([one, other], lambda line: not line.startswith("b"))
    assert extrapolating.missing([one, other]) == [other]


@pytest.mark.parametrize("kind", ["learned", "T5 buckets", "none"])
def test_encodings_of_the_teaching_models_are_their_weights(kind: str, losses: dict[str, np.ndarray]) -> None:
    at = positions(positions_encoding=kind)
    if kind == "none":
        _, arrays = chart(at, "Score against distance under each encoding")
        np.testing.assert_allclose(arrays[1], encodings.scores("rope-gqa").mean(0))
        assert "reversal moves a logit" in words(at)
        return
    name, parameter = ("learned", "embed_positions") if kind == "learned" else ("t5", "relative_bias")
    weight = getattr(load_pretrained(f"teaching:{name}", dtype="float32").model.model, parameter).weight.numpy(
        force=True
    )
    _, [cells] = drawn(at, "heat")[0]
    if kind == "learned":
        np.testing.assert_array_equal(cells, weight)
    else:
        np.testing.assert_array_equal(cells[:, :16], weight[:16].T)
        np.testing.assert_array_equal(cells[:, -1], weight[-1])


def test_a_loaded_table_is_drawn_instead(tmp_path: Path) -> None:
    model = build(VARIANTS["gpt2"])
    model.save_pretrained(tmp_path)
    at = positions(model=state.TYPED, path=str(tmp_path), prompt="3 4 5", positions_encoding="learned")
    table = model.transformer.wpe.weight.numpy(force=True)
    _, [cells] = drawn(at, "heat")[0]
    np.testing.assert_allclose(cells, table, atol=1e-6)
    assert "comes without tokenizer" in " ".join(info.value for info in at.info)


def test_the_loaded_model_is_estimated_then_measured_then_drawn() -> None:
    opened = models._load(state.Choice(state.BUILTIN, "builtin"), lambda line: True)
    asked = Asked(512, 1, "yarn")
    at = positions(positions_own_windows="1", positions_own_kind="yarn")
    at.select_slider(key="positions_own_length").set_value(512).run()
    at.button(key="positions_own_estimate").click().run()
    assert "About" in words(at)
    once, twice = own_length.estimated(opened, asked), own_length.estimated(opened, Asked(512, 2, "yarn"))
    assert once is not None
    assert once > 0
    assert twice == pytest.approx(2 * once)
    own_length.measure(opened, asked, lambda line: True)
    at.run()
    _, (position, mean, _) = chart(at, "Loss by position, the loaded model")
    assert opened.tokenizer is not None
    text = windows(opened.tokenizer.encode(teaching.heldout_text()), 512, 1)
    found = token_losses(opened.model, text, own_length.spec(opened.config, asked))
    np.testing.assert_allclose(mean, blocks(found, 16).mean, atol=1e-5)
    assert position[-1] == 503.5


def test_a_length_without_room_is_refused_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = models._load(state.Choice(state.BUILTIN, "builtin"), lambda line: True)
    monkeypatch.setattr("lmcore.device.available_bytes", lambda device: 2**21)
    with pytest.raises(CapacityError, match="8,192 positions need"):
        own_length.measure(opened, Asked(8192, 1), lambda line: True)


def test_no_length_past_a_learned_table_is_offered() -> None:
    cfg = load_pretrained("builtin", device="cpu").model.cfg
    assert own_length.lengths(cfg) == [512, 1024, 2048, 4096, 8192]
    assert max(own_length.lengths(cfg.changed(learned_positions=2048))) == 2048
    assert own_length.kinds(cfg.changed(rope=None)) == (own_length.OWN,)

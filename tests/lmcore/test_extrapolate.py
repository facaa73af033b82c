"""Loss and attention by position: equal to torch's over one forward, whatever the pieces."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lmcore.errors import CapacityError, InputError, NotInModel
from lmcore.extrapolate import (
    attention_by_position,
    beyond,
    blocks,
    estimated_seconds,
    longest,
    losses_as_it_grows,
    losses_in_pieces,
    needed_bytes,
    refuse_too_long,
    standard_error,
    token_losses,
    trained_length,
    windows,
    within,
)
from lmcore.scalings import SCALINGS, scaled
from lmcore.specs import Rope
from lmcore.trace import Capture, Edits
from tests.lmcore.teaching_models import KINDS, TRAINED
from tests.lmcore.teaching_models import made as make

made = cache(make)

TEXTS = np.random.default_rng(0).integers(0, 60, (3, 4 * TRAINED))


def again(kind: str, texts: np.ndarray, rope: Rope | None = None) -> np.ndarray:
    """torch's cross-entropy over the logits of one forward."""
    tokens = torch.from_numpy(texts)
    logits = made(kind).forward(tokens, edits=Edits(rope=rope)).logits
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none").numpy()


@pytest.mark.parametrize("piece", [7, 4 * TRAINED, 1000])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "learned"])
def test_losses_are_torchs_whatever_the_pieces(kind: str, piece: int) -> None:
    found = token_losses(made(kind), TEXTS, piece=piece)
    assert np.isnan(found[:, 0]).all()
    np.testing.assert_allclose(found[:, 1:], again(kind, TEXTS), atol=2e-5)


@pytest.mark.parametrize("kind", SCALINGS)
def test_losses_under_a_scaling_are_those_of_its_forward(kind: str) -> None:
    rope = scaled(Rope(rotary_dim=8), kind, factor=4, trained=TRAINED)
    found = token_losses(made("rope"), TEXTS, rope, piece=10)
    np.testing.assert_allclose(found[:, 1:], again("rope", TEXTS, rope), atol=2e-5)
    if kind != "none":
        assert np.abs(found - token_losses(made("rope"), TEXTS))[:, 1:].max() > 0.01


@pytest.mark.parametrize("kind", SCALINGS)
def test_a_text_that_grows_has_each_stretchs_own_frequencies(kind: str) -> None:
    rope = scaled(Rope(rotary_dim=8), kind, factor=4, trained=TRAINED)
    found = losses_as_it_grows(made("rope"), TEXTS, rope, step=TRAINED)
    for end in range(TRAINED, 4 * TRAINED + 1, TRAINED):
        expected = again("rope", TEXTS[:, :end], rope)
        first = max(1, end - TRAINED)
        np.testing.assert_allclose(found[:, first:end], expected[:, first - 1 : end - 1], atol=2e-5)
    whole = token_losses(made("rope"), TEXTS, rope)
    moved = np.nanmax(np.abs(found - whole))
    assert (moved > 0.01) == rope.follows_length


@pytest.mark.parametrize("max_bytes", [4000, 10**9])
@pytest.mark.parametrize("kind", ["rope", "alibi", "none"])
def test_attention_by_position_is_that_of_one_forward(kind: str, max_bytes: int) -> None:
    text = TEXTS[0, : 2 * TRAINED]
    found = attention_by_position(made(kind), text, max_bytes=max_bytes)
    trace = made(kind).forward(torch.from_numpy(text)[None], capture=Capture.of("pattern")).trace
    assert trace is not None
    for layer, record in trace.layers.items():
        weights = record["pattern"][0].double().numpy()
        logs = np.log(np.where(weights > 0, weights, 1))
        np.testing.assert_allclose(found.entropy[layer], -(weights * logs).sum(-1).mean(0), atol=1e-5)
        np.testing.assert_allclose(found.first[layer], weights[..., 0].mean(0), atol=1e-6)
    assert found.first[:, 0] == pytest.approx(1)
    assert (found.entropy <= np.log(np.arange(1, len(text) + 1)) + 1e-6).all()


def test_attention_under_another_rope_is_another() -> None:
    rope = scaled(Rope(rotary_dim=8), "yarn", factor=4, trained=TRAINED)
    plain, other = (attention_by_position(made("rope"), TEXTS[0], spec) for spec in (None, rope))
    assert np.abs(plain.entropy - other.entropy).max() > 0.01


def test_learned_positions_stop_with_the_number_of_their_rows() -> None:
    model = made("learned")
    assert longest(model.cfg) == TRAINED
    assert longest(made("rope").cfg) is None
    assert np.isfinite(token_losses(model, TEXTS[:, :TRAINED])[:, 1:]).all()
    for measure in (
        lambda: token_losses(model, TEXTS[:, : TRAINED + 1]),
        lambda: attention_by_position(model, TEXTS[0]),
    ):
        with pytest.raises(NotInModel, match=f"{TRAINED} rows"):
            measure()


def test_progress_counts_tokens_and_may_stop_the_work() -> None:
    told: list[tuple[int, int]] = []
    token_losses(made("rope"), TEXTS, piece=50, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (TEXTS.size, TEXTS.size)

    def stop(done: int, total: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        token_losses(made("rope"), TEXTS, progress=stop)


@pytest.mark.parametrize("length", [TRAINED, TRAINED + 5, 4 * TRAINED])
def test_in_pieces_no_token_sees_more_than_the_trained_length(length: int) -> None:
    model, half = made("rope"), TRAINED // 2
    found = losses_in_pieces(model, TEXTS[:, :length], TRAINED)
    assert np.isnan(found[:, 0]).all()
    assert np.isfinite(found[:, 1:]).all()
    starts = [0, *(at for at in range(half, length - TRAINED, half)), length - TRAINED]
    expected = np.zeros(found.shape)
    for at in starts:
        first = half if at else 1
        expected[:, at + first : at + TRAINED] = again("rope", TEXTS[:, at : at + TRAINED])[:, first - 1 :]
    np.testing.assert_allclose(found[:, 1:], expected[:, 1:], atol=2e-5)


def test_windows_are_spread_and_do_not_overlap() -> None:
    found = windows(range(1000), 100, 4)
    assert found[:, 0].tolist() == [0, 300, 600, 900]
    np.testing.assert_array_equal(found[1], np.arange(300, 400))
    assert len(np.unique(windows(range(403), 100, 4))) == 400
    assert windows(range(50), 50, 1).shape == (1, 50)
    with pytest.raises(InputError, match="403 tokens"):
        windows(range(403), 101, 4)


def test_blocks_are_means_with_their_standard_error() -> None:
    losses = np.arange(3 * 10, dtype=np.float32).reshape(3, 10)
    losses[:, 0] = np.nan
    found = blocks(losses, 4)
    assert found.position.tolist() == [1.5, 5.5, 8.5]
    assert found.mean.tolist() == [12.0, 15.5, 18.5]
    each = losses[:, 4:8].mean(1)
    assert found.error[1] == pytest.approx(each.std(ddof=1) / 3**0.5)
    assert np.isnan(blocks(losses[:1], 4).error).all()
    assert np.isnan(standard_error(np.ones(1)))
    assert float(standard_error(np.array([1.0, 3.0]))) == pytest.approx(1)


def test_within_and_beyond_do_not_mix() -> None:
    losses = np.full((2, 12), 1.0, np.float32)
    losses[:, :4], losses[:, 8:] = np.nan, 5.0
    assert within(losses, 8).tolist() == [1.0, 1.0]
    assert beyond(losses, 8).tolist() == [5.0, 5.0]
    assert np.isnan(beyond(losses[:, :8], 8)).all()


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    cfg = made("rope").cfg
    needed = needed_bytes(cfg, 100_000, 4)
    assert needed > needed_bytes(cfg, 50_000, 4)
    refuse_too_long(cfg, 100_000, 4, needed)
    with pytest.raises(CapacityError, match=f"{needed:,} bytes"):
        refuse_too_long(cfg, 100_000, 4, needed - 1)


def test_the_trained_length_is_that_before_a_scaling() -> None:
    cfg = made("rope").cfg
    assert trained_length(cfg) == TRAINED
    scaled_rope = Rope(rotary_dim=8, type="yarn", factor=4, original_max_positions=TRAINED)
    assert trained_length(cfg.changed(rope=scaled_rope, max_positions=4 * TRAINED)) == TRAINED


def test_an_estimate_grows_with_the_work() -> None:
    model = made("rope")
    few = estimated_seconds(model, 32, 1, sample=32)
    assert few > 0
    assert estimated_seconds(model, 32 * 64, 10**6, sample=32) > few

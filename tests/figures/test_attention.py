"""The attention payload: exact where it says so, pooled by maximum elsewhere, and never larger than its bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from figures.attention import (
    EXACT_BYTES,
    MASKED,
    MAX_TOKENS,
    NOT_FINITE,
    THUMBNAIL_BYTES,
    View,
    attention_payload,
    summarise,
)
from figures.payload import unpack
from figures.tokens import Token
from lmcore.errors import InputError


def softmax(rng: np.random.Generator, shape: tuple[int, int, int], allowed: np.ndarray) -> np.ndarray:
    layers, heads, tokens = shape
    scores = np.where(allowed, rng.normal(size=(layers, heads, tokens, tokens)) * 3, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def tokens_of(count: int) -> list[Token]:
    return [Token(i % 5, f" t{i % 5}".encode()) for i in range(count)]


def read(blob: bytes) -> tuple[dict, np.ndarray, np.ndarray]:
    """The header, the exact weights unpacked to full maps (NaN where nothing was sent), and the masks."""
    meta, (packed, bits, *_) = unpack(blob)
    tokens = meta["shape"][2]
    cells = np.tril_indices(tokens) if meta["triangular"] else np.indices((tokens, tokens)).reshape(2, -1)
    exact = np.full((*packed.shape[:2], tokens, tokens), np.nan, np.float32)
    exact[:, :, cells[0], cells[1]] = packed
    masks = np.unpackbits(bits, axis=-1, bitorder="little", count=tokens * tokens).reshape(-1, tokens, tokens)
    return meta, exact, masks.astype(bool)


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 40), st.integers(0, 2**32 - 1), st.booleans())
def test_every_weight_of_a_short_prompt_is_there_exactly(layers, heads, tokens, seed, causal):
    allowed = np.tri(tokens, dtype=bool) if causal else np.ones((tokens, tokens), bool)
    weights = softmax(np.random.default_rng(seed), (layers, heads, tokens), allowed)
    ids = [token.id for token in tokens_of(tokens)]
    summary = summarise(weights, ids, allowed)
    meta, exact, masks = read(attention_payload(weights, summary, tokens_of(tokens), n_kv_heads=1))
    assert summary.exact == "all"
    assert np.array_equal(masks[0], allowed)
    assert np.array_equal(exact[:, :, allowed], weights[:, :, allowed])
    assert meta["triangular"] == bool(causal or tokens == 1)
    view = meta["view"]
    assert allowed[view["query"], view["key"]]


def test_masks_that_differ_between_layers():
    tokens = 6
    query, key = np.mgrid[:tokens, :tokens]
    full, window = key <= query, (key <= query) & (key > query - 2)
    allowed = np.stack([full, window, full])
    weights = softmax(np.random.default_rng(0), (3, 2, tokens), allowed[:, None])
    meta, _, masks = read(
        attention_payload(weights, summarise(weights, range(tokens), allowed), tokens_of(6), n_kv_heads=2)
    )
    assert len(masks) == 2
    for layer, which in enumerate(meta["mask_of_layer"]):
        assert np.array_equal(masks[which], allowed[layer])


@pytest.mark.parametrize(("heads", "kind"), [(2, "layer"), (70, "head")])
def test_a_long_prompt_has_one_layer_or_head_exact_and_thumbnails_of_all(heads, kind):
    tokens, layers = 250 if kind == "layer" else 400, 2
    allowed = np.tri(tokens, dtype=bool)
    weights = softmax(np.random.default_rng(1), (layers, heads, tokens), allowed)
    summary = summarise(weights, range(tokens), allowed)
    assert summary.exact == kind
    blob = attention_payload(weights, summary, tokens_of(tokens), n_kv_heads=1, exact=(1, heads - 1))
    meta, exact, _ = read(blob)
    first = meta["exact"]["head"]
    assert meta["exact"] == {
        "layer": 1,
        "layers": 1,
        "head": 0 if kind == "layer" else heads - 1,
        "heads": exact.shape[1],
    }
    assert np.array_equal(exact[0][:, allowed], weights[1, first : first + exact.shape[1]][:, allowed])

    thumbnails = unpack(blob)[1][4]
    block = meta["block"]
    for scale in (0, 1):
        shown = weights[0, 1].astype(np.float64) * allowed
        if scale:
            shown[:, 0] = 0
            rest = shown.sum(-1, keepdims=True)
            shown = np.divide(shown, rest, out=np.zeros_like(shown), where=rest > 0)
        for row, column in [(0, 0), (3, 2), (5, 5), (thumbnails.shape[3] - 1, 1)]:
            cells = np.s_[row * block : (row + 1) * block, column * block : (column + 1) * block]
            byte = thumbnails[scale, 0, 1, row, column]
            assert ((byte - 1) / 253) ** 2 == pytest.approx(shown[cells].max(), abs=0.005)
        assert thumbnails[scale, 0, 1, 0, -1] == MASKED


def test_a_cell_that_is_not_finite_shows_in_its_thumbnail_and_is_counted():
    tokens = 200
    weights = np.tile(np.tri(tokens, dtype=np.float32) / tokens, (1, 2, 1, 1))
    weights[0, 1, 150, 3] = np.nan
    weights[0, 1, 3, 150] = np.nan  # masked: it is no cell
    summary = summarise(weights, range(tokens))
    assert summary.not_finite.tolist() == [[0, 1]]
    place = (150 // summary.block, 3 // summary.block)
    assert (summary.thumbnails[:, 0, 1] == NOT_FINITE).sum() >= 1
    assert summary.thumbnails[0, 0, 1][place] == NOT_FINITE
    assert not (summary.thumbnails[:, 0, 0] == NOT_FINITE).any()


@pytest.mark.parametrize(
    ("layers", "heads", "tokens", "causal"),
    [
        (30, 9, 128, True),
        (30, 9, 512, True),
        (32, 32, 128, True),
        (2, 64, 512, False),
        (126, 128, 16, True),
        (1, 1, MAX_TOKENS, False),
    ],
)
def test_bytes_are_bounded_whatever_the_shape(layers, heads, tokens, causal):
    layer = np.broadcast_to(np.float32(1 / tokens), (heads, tokens, tokens))
    weights = [layer] * layers
    allowed = np.tri(tokens, dtype=bool) if causal else np.ones((tokens, tokens), bool)
    summary = summarise(weights, [0] * tokens, allowed)
    blob = attention_payload(weights, summary, tokens_of(tokens), n_kv_heads=1)
    thumbnails = max(THUMBNAIL_BYTES, 32 * layers * heads)
    text = 80 * tokens + 6000
    assert len(blob) <= EXACT_BYTES + thumbnails + tokens**2 // 8 + 32 * layers * heads + text


@pytest.mark.parametrize("tokens", [0, MAX_TOKENS + 1])
def test_too_many_tokens_are_refused_with_both_numbers(tokens):
    with pytest.raises(InputError, match=str(MAX_TOKENS)) as error:
        summarise([np.zeros((1, 1, 1), np.float32)], [0] * tokens)
    assert str(tokens) in str(error.value)


def test_the_first_view_is_the_largest_weight_of_the_last_query_apart_from_the_sink_and_itself():
    weights = np.zeros((2, 3, 5, 5), np.float32)
    weights[:, :, 4, 0] = 0.9
    weights[0, 1, 4, 4] = 0.8
    weights[1, 2, 4, 3] = 0.3
    assert summarise(weights, range(5)).start == View(layer=1, head=2, query=4, key=3)
    assert summarise(weights[:, :, :1, :1], [0]).start == View()


def test_the_view_asked_for_is_in_the_payload_and_a_layer_beyond_the_model_is_not():
    weights = np.tile(np.tri(140, dtype=np.float32), (2, 1, 1, 1))
    summary = summarise(weights, range(140))
    view = View(layer=1, head=0, query=3, key=2, grid="cell", scale="without-sink")
    meta, _ = unpack(attention_payload(weights, summary, tokens_of(140), n_kv_heads=1, view=view, exact=(99, 99)))
    assert meta["view"] == {"layer": 1, "head": 0, "query": 3, "key": 2, "grid": "cell", "scale": "without-sink"}
    assert meta["exact"]["layer"] == 1

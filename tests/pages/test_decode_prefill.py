"""Prefill in chunks and from another prompt's cache on the Decode page: lmcore's own numbers, made a second time."""

from __future__ import annotations

import pytest
import torch

from figures.prefix import seam
from lmcore.cache import KVCache
from lmcore.checkpoint import Loaded
from lmcore.measure import FlopCount
from lmcore.prefill import common_prefix
from lmcore.trace import Capture
from tests.pages.test_decode import decode, loaded, tokens  # noqa: F401
from tests.pages.test_decode_sections import asks, mounted
from ui import prefill_view, prefilling, prefix_view, state

TEXT = "Once upon a time"


def counted(model, ids: list[int], size: int, cached: int = 0) -> tuple[list[int], int]:
    """FLOPs of each chunk and the largest weights of a layer, by running them; the first `cached` tokens uncounted."""
    cache = KVCache.empty(model.cfg, len(ids))
    if cached:
        model(torch.tensor([ids[:cached]]), cache=cache)
    flops, peak = [], 0
    for begin in range(cached, len(ids), size):
        with FlopCount(model) as counter:
            part = torch.tensor([ids[begin : begin + size]])
            trace = model(part, cache=cache, capture=Capture.of("pattern"), logits_to_keep=1).trace
        flops.append(sum(counter.flops.values()))
        peak = max(peak, *(layer["pattern"].nbytes for layer in trace.layers.values()))
    return flops, peak


def encoded(loaded: Loaded, text: str) -> list[int]:  # noqa: F811
    assert loaded.tokenizer is not None
    return loaded.tokenizer.encode(text)


def exact(tile: dict, name: str) -> int:
    return int("".join(letter for letter in tile[name] if letter.isdigit()))


def test_the_chunks_are_those_of_lmcore(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    at = decode(prompt=TEXT, decode_chunk="5")
    before, _ = mounted(at, "decode_prefill", "twins")
    assert before["tiles"][0]["state"] == "missing"
    asks(monkeypatch, "decode_prefill", prefill_view.LOGITS)
    at.run()
    assert not at.exception
    ids = encoded(loaded, TEXT)
    logits, cache, flops, scores = mounted(at, "decode_prefill", "twins")[0]["tiles"]
    assert before["tiles"][0]["run"] == f"Prefill in {-(-len(ids) // 5)} chunks"
    for tile in (logits, cache):
        assert tile["state"] == "equal" or tile["reason"] == "float32 rounding"
    by_count, peak = counted(loaded.model, ids, 5)
    assert flops["state"] == scores["state"] == "equal"
    assert exact(flops, "measured") == sum(by_count)
    assert exact(scores, "measured") == peak
    assert any(f"{len(by_count)} chunks took" in element.value for element in at.markdown)


def test_the_curve_measures_every_size(loaded: Loaded) -> None:  # noqa: F811
    at = decode(prompt="abcdefgh")
    had = len(at.get("plotly_chart"))
    at.button(key="decode_prefill_curve").click().run()
    assert not at.exception
    ids = encoded(loaded, "abcdefgh")
    sizes = prefilling.sizes(len(ids))
    assert sizes[0] == 1
    assert sizes[-1] == len(ids)
    assert len(at.get("plotly_chart")) >= had + 2
    assert not [button for button in at.button if button.key == "decode_prefill_curve"]


def test_sizes_never_make_more_chunks_than_the_bound() -> None:
    for length in (1, 2, 63, 64, 65, 128, 1000, 2048):
        sizes = prefilling.sizes(length)
        assert sizes[-1] == length
        assert sorted(set(sizes)) == sizes
        assert all(len(prefilling.parts(length, size)) <= prefilling.MOST_CHUNKS for size in sizes)
        assert all(sum(count for _, count in prefilling.parts(length, size)) == length for size in sizes)


def test_a_prompt_of_one_token_is_not_divided(bare_folder: str) -> None:
    at = decode(prompt="7", model=state.TYPED, path=bare_folder)
    assert not at.exception
    assert any("there is nothing to divide" in element.value for element in at.markdown)


def test_another_prompt_is_read_on_from_the_common_tokens(
    loaded: Loaded,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = "Once upon a dime"
    at = decode(prompt=TEXT, decode_other=other)
    first, second = encoded(loaded, TEXT), encoded(loaded, other)
    shared = common_prefix(first, second)
    assert 0 < shared < len(second) - 1
    [_, version] = mounted(at, "decode_prefix", "texts")[0]["texts"]
    assert version["note"] == f"{shared} reused, {len(second) - shared} to compute"
    asks(monkeypatch, "decode_prefix_tiles", prefix_view.LOGITS)
    at.run()
    assert not at.exception
    logits, reused, afresh = mounted(at, "decode_prefix_tiles", "twins")[0]["tiles"]
    assert logits["state"] == "equal" or logits["reason"] == "float32 rounding"
    assert reused["state"] == afresh["state"] == "equal"
    assert exact(reused, "measured") == counted(loaded.model, second, len(second), cached=shared)[0][0]
    assert exact(afresh, "measured") == counted(loaded.model, second, len(second))[0][0]


def test_tokens_that_the_run_has_made_are_reused_too(loaded: Loaded) -> None:  # noqa: F811
    """The second prompt goes on as the run did; nothing but its last token is left to compute."""
    ids, whole = encoded(loaded, TEXT), encoded(loaded, f"{TEXT}zq")
    assert whole[: len(ids)] == ids
    forced = ",".join(f"{index}:{token}" for index, token in enumerate(whole[len(ids) :]))
    at = decode(
        prompt=TEXT, decode_steps=str(1 + len(whole) - len(ids)), decode_forced=forced, decode_other=f"{TEXT}zq"
    )
    while len(tokens(at)) < 1 + len(whole) - len(ids):
        at.run()
    [_, version] = mounted(at, "decode_prefix", "texts")[0]["texts"]
    assert version["note"] == f"{len(whole) - 1} reused, 1 to compute"
    assert any("its generated tokens are reused" in element.value for element in at.markdown)


def test_a_windowed_layer_that_evicted_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmcore.cache.KVCache.can_truncate", lambda self, length: length == 0)
    at = decode(prompt=TEXT, decode_other="Once upon a dime")
    [_, version] = mounted(at, "decode_prefix", "texts")[0]["texts"]
    assert version["note"].startswith("0 reused")
    assert any("a windowed layer has evicted" in element.value for element in at.markdown)


def test_the_seam_goes_by_tokens_and_the_texts_may_share_more() -> None:
    found = seam([1, 2, 3], [1, 4], ([b"The", b" qu", b"ick"], [b"The", b" quick"]))
    assert found == (1, 3, 9)
    assert found.merged == 6
    assert seam([1, 2], [1, 2], ([b"a", b"b"], [b"a", b"b"])) == (2, 2, 2)
    assert seam([1], [2], ([b"a"], [b"b"])) == (0, 0, 0)

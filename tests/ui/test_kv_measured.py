"""What the KV page measures on a running model: kept by all it depends on, and what lmcore says of it."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from lmcore import surgery as cuts
from lmcore.cache import KVCache
from lmcore.errors import Cancelled, NotInModel
from lmcore.fidelity import mean_loss
from lmcore.kv_costs import kv_cache_bytes
from lmcore.quantise import How, kivi, quantised_cache
from lmcore.trace import Capture
from ui import models, quantising, state, surgery
from ui.asked import Asked
from ui.models import Opened
from ui.quantising import Setting

IDS = tuple(range(60, 100))


@pytest.fixture(scope="module")
def opened() -> Opened:
    return models._load(state.Choice(state.BUILTIN, "builtin", "cpu", "float32"), lambda line: True)


def test_the_curve_is_lmcores(opened: Opened) -> None:
    """Loss of each point by a forward of its own; bytes by formula; ranks up to the full one, which loses nothing."""
    said: list[str] = []
    points = surgery.measure(opened, IDS, False, said.append)
    assert [p.name for p in points[:2]] == ["as loaded, 2 KV heads", "1 KV head"]
    tokens = torch.tensor([IDS])
    merged = cuts.merge_kv_heads(opened.model, 1)
    assert points[1].loss == pytest.approx(mean_loss(merged(tokens).logits[0].numpy(), IDS))
    assert points[1].cache_bytes == sum(kv_cache_bytes(merged.cfg, context=40, itemsize=4))
    ranks = [p.value for p in points if p.kind == "cut"]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[0] < 32  # all of it would be no smaller
    assert all(p.divergence > points[0].divergence == 0 for p in points[1:])
    assert any("SVD of layer" in line for line in said)
    half = next(p for p in points if p.value == 16)
    assert half.cache_bytes == 4 * 40 * 2 * 16 * 4
    assert half.energy is not None
    assert 0.3 < half.energy < 1


def test_the_map_of_a_head_before_and_after(opened: Opened) -> None:
    trace = cuts.merge_kv_heads(opened.model, 1)(torch.tensor([IDS]), capture=Capture.of("pattern")).trace
    assert trace is not None
    after = surgery.pattern(opened, IDS, "merged", 1, joint=True, layer=2, head=3)
    np.testing.assert_allclose(after, trace.layers[2]["pattern"][0, 3].numpy(), atol=1e-6)
    before = surgery.pattern(opened, IDS, "loaded", 0, joint=True, layer=2, head=3)
    assert np.abs(before - after).max() > 0.01


def test_formats_are_counted_and_lose_in_order(opened: Opened) -> None:
    points = quantising.measure(opened, IDS, Setting(8, 0, 8), lambda line: None)
    by_name = {p.name: p for p in points}
    assert all(p.used_bytes == p.expected_bytes for p in points)
    assert by_name["full precision"].divergence == 0
    assert by_name["INT8"].divergence < by_name["INT4"].divergence < by_name["2 bit"].divergence
    cache = quantised_cache(opened.config, 40, How(kivi(4, 8)))
    plain = KVCache.empty(opened.config, 40)
    for held in (cache, plain):
        opened.model(torch.tensor([IDS]), cache=held)
    assert (by_name["INT4"].used_bytes, points[0].used_bytes) == (cache.used_bytes, plain.used_bytes)


def test_mqa_can_only_be_cut(opened: Opened) -> None:
    single = cuts.merge_kv_heads(opened.model, 1)
    with pytest.raises(NotInModel):
        cuts.mergeable(single.cfg)
    own = Opened(**{**vars(opened), "key": ("mqa",), "config": single.cfg, "weights": single})
    assert {p.kind for p in surgery.measure(own, IDS[:8], True, lambda line: None)[1:]} == {"cut"}


def done(asked: Asked, key: tuple) -> None:
    deadline = time.monotonic() + 60
    while asked.running(key) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert asked.running(key) is None


def test_work_is_made_once_kept_and_dropped() -> None:
    asked: Asked[int] = Asked("test", size=lambda value: 8)
    made = []
    key = ("model", 1)
    for _ in range(2):
        asked.start(key, lambda tell: made.append(1) or 7)
        done(asked, key)
    assert asked.found(key) == 7
    assert asked.found(("model", 2)) is None
    asked.drop(key)
    assert asked.found(key) is None


def test_cancelled_work_says_so() -> None:
    asked: Asked[int] = Asked("test", size=lambda value: 8)
    key = ("model",)

    def work(tell) -> int:
        for _ in range(3000):
            tell("working")
            time.sleep(0.01)
        return 1

    asked.start(key, work)
    asked.cancel(key)
    done(asked, key)
    assert isinstance(asked.failure(key), Cancelled)
    assert asked.found(key) is None

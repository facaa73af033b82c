"""The teaching models in the app: chosen in the sidebar, checked like any other model."""

from __future__ import annotations

import numpy as np
import pytest

from lmcore import teaching
from tests.pages.test_every_page import open_page
from ui import heads, models, state

PROMPT = "ROMEO:\nBut soft, what light"


def opened(label: str) -> models.Opened:
    return models._load(state.Choice(label, state.SOURCES[label], "cpu", "float32"), lambda line: True)


@pytest.mark.parametrize("title", ["T5 bias", "ALiBi", "Sinusoidal", "Induction"])
def test_the_weights_are_those_of_a_second_derivation(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = opened(f"Teaching model: {title}")
    assert model.tokenizer is not None
    found = heads.of(model, tuple(model.tokenizer.encode(PROMPT)))
    check = found.check(0, 0)
    assert check is not None
    assert check.difference <= check.bound
    if title == "T5 bias":
        bias = heads.distance_bias(model.model, 5)
        assert bias is not None
        assert np.ptp(bias, axis=1).max() > 0.5
        monkeypatch.setattr(heads, "distance_bias", lambda model, tokens: None)
        monkeypatch.setattr(heads, "_CHECKS", type(heads._CHECKS)(max_entries=1, max_bytes=10**6, size=lambda c: 1))
        without = found.check(0, 0)
        assert without is not None
        assert without.difference > 100 * check.bound


def test_the_sidebar_tells_the_held_out_loss() -> None:
    at = open_page("tokens", model="Teaching model: RoPE", prompt=PROMPT)
    assert not at.exception
    said = " ".join(element.value for element in at.sidebar.markdown).replace("\\", "")
    record = teaching.record("rope-gqa")
    assert f"Held-out loss {record['heldout']['nats_per_token']:.2f} nats" in said
    assert "random weights" not in said


def test_a_model_without_feed_forward_has_no_such_part_in_the_diagram() -> None:
    at = open_page("overview", model="Teaching model: Induction", prompt=PROMPT)
    assert not at.exception
    assert not at.error
    said = " ".join(element.value for element in at.sidebar.markdown).replace("\\", "")
    assert "planted induction score" in said

"""The Decode page after a change of the prompt: what the cache of the run before already holds is not run again."""

from __future__ import annotations

import numpy as np
from streamlit.testing.v1 import AppTest

from lmcore.checkpoint import load_pretrained
from lmcore.prefill import common_prefix
from tests.pages.test_decode import decode, payload, straight, tokens

FIRST, LONGER, OTHER = "Once upon a time", "Once upon a time there was", "A time there was once"


def said(at: AppTest) -> str:
    return "\n".join(element.value for element in at.markdown)


def test_a_longer_prompt_is_read_on_from_the_cache_of_the_one_before() -> None:
    loaded = load_pretrained("builtin", dtype="float32", device="cpu")
    assert loaded.tokenizer is not None
    at = decode(prompt=FIRST)
    assert "the earlier prompt" not in said(at)
    at.text_area(key="prompt").set_value(LONGER).run()
    assert not at.exception
    common = common_prefix(*(loaded.tokenizer.encode(text) for text in (FIRST, LONGER)))
    left = len(loaded.tokenizer.encode(LONGER)) - common
    assert f"Prefill read {left} tokens in " in said(at)
    assert f"The {common} tokens before came from the cache of the earlier prompt" in said(at)
    expected = straight(loaded, LONGER, 1)
    assert tokens(at) == [step.token for step in expected.steps]
    _, (lengths,) = payload(at, "cache")
    held = np.stack([expected.cache.keys(at)[0].norm(dim=-1).numpy() for at in range(len(expected.cache.layers))])
    np.testing.assert_allclose(lengths, held, atol=1e-4)

    at.text_area(key="prompt").set_value(OTHER).run()
    assert "the earlier prompt" not in said(at)
    assert tokens(at) == [step.token for step in straight(loaded, OTHER, 1).steps]

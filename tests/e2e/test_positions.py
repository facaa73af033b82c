"""Positions in a browser: frequencies as Python has them, the model's vectors, and no message while they turn."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Page, expect

from figures.scalings import METHODS, parameters, scaled
from lmcore.checkpoint import load_pretrained
from lmcore.frequencies import frequencies, powers
from lmcore.specs import Rope
from lmcore.trace import Edits
from tests.e2e.conftest import PHONE, SETTLE_MS, OpenPage
from tests.lmcore.test_frequencies import LENGTHS, SPECS
from ui.components import FOLDER

COUNT_SENT = """() => {
    const send = WebSocket.prototype.send;
    window.sent = 0;
    WebSocket.prototype.send = function (...given) { window.sent += 1; return send.apply(this, given) };
}"""
TEXT = "abcabc the the"


def fields(rope: Rope) -> dict[str, Any]:
    return asdict(rope)


@pytest.fixture
def blank(browser: Browser) -> Iterator[Page]:
    """An empty page with the component's arithmetic in it, and nothing else."""
    page = browser.new_page()
    for path in ("frequencies/frequencies.js", "frequencies/scaled.js"):
        page.add_script_tag(content=(FOLDER / path).read_text(encoding="utf-8"))
    yield page
    page.close()


def test_the_browser_has_pythons_frequencies_for_every_type_and_every_setting(blank: Page):
    draw = random.Random(0)
    own = [Rope(rotary_dim=64, **spec) for spec in SPECS.values()]
    own += [
        replace(rope, base=base, rotary_dim=dim)
        for rope in own
        for base, dim in ((5e5, 128), (1e6, 64))
        if not rope.short_factor
    ]
    specs = [(rope, length) for rope in own for length in LENGTHS]
    chosen = []
    for dim, base in ((64, 1e4), (128, 5e5), (16, 1e5), (2, 1e4)):
        rope = Rope(rotary_dim=dim, base=base)
        sliders = parameters(rope, 2048)
        for _ in range(8):
            settings = {p.key: p.default if draw.random() < 0.3 else draw.uniform(p.low, p.high) for p in sliders}
            chosen += [(method, settings, rope) for method in METHODS]
    given = [[fields(rope), length] for rope, length in specs]
    found = blank.evaluate(
        """given => given.map(([rope, length]) => {
            const f = ropeFrequencies(rope, length);
            return [Array.from(f.theta), f.factor];
        })""",
        given,
    )
    for (rope, length), (theta, factor) in zip(specs, found, strict=True):
        expected, wanted = frequencies(rope, length)
        np.testing.assert_allclose(theta, expected, rtol=1e-6, err_msg=f"{rope} at {length}")
        assert factor == pytest.approx(wanted, rel=1e-6)
    found = blank.evaluate(
        """given => given.map(([method, settings, rope]) => {
            const f = ropeFrequencies(scaledRope(method, settings, rope), Math.round(settings.length));
            return [Array.from(f.theta), f.factor];
        })""",
        [[method, settings, fields(rope)] for method, settings, rope in chosen],
    )
    for (method, settings, rope), (theta, factor) in zip(chosen, found, strict=True):
        expected, wanted = frequencies(scaled(method, settings, rope), round(settings["length"]))
        np.testing.assert_allclose(theta, expected, rtol=1e-6, err_msg=f"{method} {settings}")
        assert factor == pytest.approx(wanted, rel=1e-6)


def read(page: Page, figure: str) -> dict[str, Any]:
    return page.locator(f".{figure}").evaluate("node => node.read()")


def drag(page: Page, figure: str, name: str, place: int) -> None:
    page.locator(f".{figure}").get_by_label(name, exact=True).evaluate(
        "(range, place) => { range.value = place; range.dispatchEvent(new Event('input')) }", place
    )


def test_a_pair_turns_a_base_moves_and_a_scaling_is_applied_and_undone_on_a_phone(open_page: OpenPage):
    loaded = load_pretrained("builtin", dtype="float32", device="cpu")
    assert loaded.tokenizer is not None
    assert loaded.model.cfg.rope is not None
    rope, ids = loaded.model.cfg.rope, loaded.tokenizer.encode(TEXT)
    page = open_page("positions", prompt=TEXT, size=PHONE, scheme="dark", turn_head=1, pair=1, turn_key=2)
    page.set_default_timeout(SETTLE_MS)
    page.locator(".scalings table button").first.wait_for()
    page.evaluate(COUNT_SENT)

    before = read(page, "turning")
    assert (before["head"], before["pair"], before["key"], before["m"]) == (1, 1, 2, len(ids) - 1)
    page.get_by_role("button", name="Play", exact=True).click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible(timeout=SETTLE_MS)
    figure = page.locator(".turning").element_handle()
    page.wait_for_function("([node, m]) => node.read().m > m + 3", arg=[figure, before["m"]])
    moved = read(page, "turning")
    assert moved["m"] - moved["n"] == pytest.approx(before["m"] - before["n"])
    assert moved["share"] == pytest.approx(before["share"], rel=1e-6)
    page.get_by_role("button", name="Pause", exact=True).click()
    drag(page, "turning", "Position m of q", 300)
    now = read(page, "turning")
    theta = frequencies(rope, 1)[0][1]
    z = complex(*now["q"]) * np.exp(1j * 300 * theta)
    assert now["turnedQ"] == pytest.approx([z.real, z.imag], rel=1e-9)

    drag(page, "pairs", "Base b′", 500)
    base = read(page, "pairs")
    assert base["base"] == pytest.approx(1e5, rel=1e-3)
    np.testing.assert_allclose(base["theta"], powers(base["base"], rope.rotary_dim), rtol=1e-6)
    assert base["slow"] == [i for i, t in enumerate(base["theta"]) if 2 * np.pi / t > loaded.model.cfg.max_positions]
    drag(page, "scalings", "Factor s", 500)
    now = read(page, "scalings")
    assert now["settings"]["factor"] == pytest.approx(8, rel=1e-3)
    for method in now["methods"]:
        spec = scaled(method["key"], now["settings"], rope)
        np.testing.assert_allclose(method["theta"], frequencies(spec, 8192)[0], rtol=1e-6)
    assert page.evaluate("window.sent") == 0

    page.locator("[data-method=ntk]").click()
    page.locator("[data-apply=apply]").click()
    headline = page.locator(".pair .headline").nth(1)
    headline.wait_for()
    spec = scaled("ntk", now["settings"], rope)
    own, new = (loaded.model.forward(torch.tensor([ids]), edits=e).logits for e in (Edits(), Edits(rope=spec)))
    assert float(headline.inner_text()) == pytest.approx(float((own - new).abs().max()), rel=2e-3)
    page.wait_for_function("() => location.search.includes('scale_applied=ntk')")
    page.locator("[data-apply=undo]").click()
    expect(page.locator(".pair")).to_have_count(0, timeout=SETTLE_MS)
    page.wait_for_function("() => !location.search.includes('scale_applied')")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

"""What the buttons under the figures save: the canvas as it is drawn, and lmcore's numbers."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import Locator

from lmcore.checkpoint import Loaded, load_pretrained
from lmcore.decode import Decoder
from lmcore.effects import contribution_map
from lmcore.masks import Mask
from lmcore.sampling import Sampler
from lmcore.trace import Capture, Edits
from tests.e2e.conftest import OpenPage

TEXT = "=1+1 abcabc"


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_pretrained("builtin", dtype="float32", device="cpu")


def saved(figure: Locator, ending: str, folder: Path) -> Path:
    """The file that the figure's first button of this kind saves."""
    with figure.page.expect_download() as waiting:
        figure.get_by_role("button", name=ending, exact=True).first.click()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def rows(figure: Locator, folder: Path) -> list[dict[str, str]]:
    found = list(csv.DictReader(saved(figure, "CSV", folder).open()))
    texts = (row[name] for row in found for name in ("query", "key", "token") if name in row)
    assert not any(re.match(r"[=+\-@\t\r]", text) for text in texts)
    return found


def assert_drawn(figure: Locator, folder: Path) -> None:
    """The picture holds at least the figure's largest canvas, and is not blank."""
    picture = np.asarray(Image.open(saved(figure, "PNG", folder)).convert("RGB"))
    sizes = figure.evaluate("node => [...node.querySelectorAll('canvas')].map((c) => [c.width, c.height])")
    width, height = np.max(sizes, axis=0)
    assert picture.shape[0] > height
    assert picture.shape[1] > width
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20


def test_the_attention_page_saves_masks_contributions_and_parts(loaded: Loaded, open_page: OpenPage, tmp_path: Path):
    page = open_page("attention", prompt=TEXT, layer=1, head=2, attention_mask="sliding window", stage="raw")
    assert loaded.tokenizer is not None
    tokens = torch.tensor([loaded.tokenizer.encode(TEXT)])
    trace = loaded.model.forward(tokens, capture=Capture.of("scores_raw", "pattern", "v")).trace
    windowed = loaded.model.forward(tokens, edits=Edits(mask=Mask(window=4))).logits[0, -1].softmax(-1)
    assert trace is not None
    layer = trace.layers[1]
    count = tokens.shape[1]

    stages = page.locator(".stages")
    assert_drawn(stages, tmp_path)
    for row in rows(stages, tmp_path):
        cell = layer["scores_raw"][0, 2, int(row["query position"]), int(row["key position"])]
        assert float(row["Scores"]) == pytest.approx(float(cell), abs=1e-4)

    masks, contributions = (page.locator(".fields").nth(index) for index in range(2))
    found = rows(masks, tmp_path)
    assert len(found) == count**2
    for row in found:
        inside = 0 <= int(row["query position"]) - int(row["key position"]) < 4
        assert row["Mask: sliding window"] == ("may read" if inside else "may not read")
        assert bool(row["Weights of the same head under this mask"]) == inside
    expected = contribution_map(loaded.model, 1, layer["pattern"][0].numpy(), layer["v"][0].numpy())[2]
    for row in rows(contributions, tmp_path):
        query, key = int(row["query position"]), int(row["key position"])
        text = row["Contribution, layer 1, head 2"]
        assert (text == "") == (key > query)
        if text:
            assert float(text) == pytest.approx(expected[query, key], abs=1e-6)
    assert_drawn(contributions, tmp_path)

    for row in rows(page.locator(".beside").first, tmp_path):
        if row["next token id"]:
            assert float(row["this mask"]) == pytest.approx(float(windowed[int(row["next token id"])]), abs=1e-5)
    parts = page.locator(".ranked").first
    assert_drawn(parts, tmp_path)
    cfg = loaded.model.cfg
    assert len(rows(parts, tmp_path)) == cfg.n_layers * (cfg.n_heads + 1)


def test_the_decode_page_saves_what_every_head_reads(loaded: Loaded, open_page: OpenPage, tmp_path: Path):
    page = open_page("decode", prompt=TEXT, decode_steps=3, decode_temperature=0.0)
    assert loaded.tokenizer is not None
    decoder = Decoder(loaded.model, loaded.tokenizer.encode(TEXT), Sampler(temperature=0.0))
    for _ in range(3):
        decoder.step()
    read = list(decoder.tokens[:-1])  # what the third step's query, the second token, has before it
    trace = loaded.model.forward(torch.tensor([read]), capture=Capture.of("pattern")).trace
    assert trace is not None
    field = page.get_by_role("application", name="attention of step 2")
    field.scroll_into_view_if_needed()
    reads = page.locator(".gb", has=field)
    found = rows(reads, tmp_path)
    assert len(found) == loaded.model.cfg.n_layers * loaded.model.cfg.n_heads * len(read)
    for row in found:
        weights = trace.layers[int(row["layer"])]["pattern"][0, int(row["head"]), -1]
        assert float(row["weight"]) == pytest.approx(float(weights[int(row["position"])]), abs=1e-5)
    assert_drawn(reads, tmp_path)


def test_the_decode_page_saves_a_step_its_times_and_the_cache(loaded: Loaded, open_page: OpenPage, tmp_path: Path):
    page = open_page("decode", prompt=TEXT, decode_steps=3, decode_temperature=0.0)
    assert loaded.tokenizer is not None
    decoder = Decoder(loaded.model, loaded.tokenizer.encode(TEXT), Sampler(temperature=0.0))
    steps = [decoder.step() for _ in range(3)]
    figure = page.locator(".gb", has=page.locator(".distribution"))
    listed = rows(figure, tmp_path)
    assert steps[2].logits is not None
    expected = torch.as_tensor(steps[2].logits).double().softmax(-1)
    for row in listed:
        assert float(row["probability in the model"]) == pytest.approx(float(expected[int(row["token id"])]), abs=1e-5)
    assert [int(row["token id"]) for row in listed if row["chosen"] == "1"] == [steps[2].token]
    picture = np.asarray(Image.open(saved(figure, "PNG", tmp_path)).convert("RGB"))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 10
    with page.expect_download() as waiting:
        figure.get_by_role("button", name="CSV", exact=True).nth(1).click()
    times = list(csv.DictReader(Path(waiting.value.path()).read_text().splitlines()))
    assert [int(row["token id"]) for row in times] == [step.token for step in steps]
    assert all(0 < float(row["seconds"]) < 60 for row in times)
    cache = page.locator(".gb", has=page.get_by_role("img", name="KV cache"))
    stored = rows(cache, tmp_path)
    cfg = loaded.model.cfg
    assert len(stored) == cfg.n_layers * cfg.n_kv_heads * decoder.cache.length
    for row in stored:
        key = decoder.cache.keys(int(row["layer"]))[0, int(row["KV head"]), int(row["first position"])]
        assert float(row["length of the stored key"]) == pytest.approx(float(key.norm()), rel=2e-3)
    assert_drawn(cache, tmp_path)

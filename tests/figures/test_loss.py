"""Payloads, tiles and sentences of the Tokens page."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from figures.facts import Fact, facts_payload
from figures.loss import dots_csv, dots_payload, logit_edges, loss_payload, loss_points, loss_tiles, with_next
from figures.payload import unpack
from figures.scripts import SENTENCES, scripts_payload, scripts_point
from figures.table import csv_text
from figures.tokens import Token
from lmcore.likelihood import predict

RNG = np.random.default_rng(1)
LOGITS = RNG.normal(0, 3, (5, 12)).astype(np.float32)
IDS = [3, 1, 4, 1, 5]
SAID = predict(LOGITS, IDS)
TOKENS = [Token(i, b"<b>%d</b>" % i) for i in IDS]


def test_loss_payload_carries_exact_terms():
    edges = logit_edges(-5.0, 9.0)
    counts = np.zeros((5, len(edges) - 1), int)
    meta, (logit, lse, bins, sent) = unpack(
        loss_payload(TOKENS, logit=SAID.logit, logsumexp=SAID.logsumexp, counts=counts, edges=edges, vocab_size=12)
    )
    assert meta["ids"] == IDS
    np.testing.assert_array_equal(logit, SAID.logit)
    np.testing.assert_array_equal(lse - logit, SAID.loss)
    assert bins.shape == (5, 56)
    np.testing.assert_array_equal(sent, edges)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (float("nan"), 2.0), (0.0, float("inf"))])
def test_edges_rise_whatever_the_logits(low: float, high: float):
    edges = logit_edges(low, high)
    assert np.isfinite(edges).all()
    assert (np.diff(edges) > 0).all()


def test_the_next_token_of_the_text_is_added_where_it_is_not_likely():
    found = with_next(np.array([[7, 1], [4, 2], [9, 8]]), [0, 1, 5], 2)
    assert found.tolist() == [[7, 1, -1], [4, 2, 5], [9, 8, -1]]


def test_dots_payload_names_every_candidate_and_only_those():
    candidates = with_next(SAID.top_ids, IDS, 3)
    shape = candidates.shape
    blob = dots_payload(
        TOKENS,
        candidates=candidates,
        product=np.zeros(shape),
        logit=np.zeros(shape),
        normed_length=np.ones(5),
        row_length=np.ones(shape),
        token_of=lambda i: Token(i, b"t%d" % i),
    )
    meta, arrays = unpack(blob)
    assert set(meta["vocabulary"]) == {str(i) for i in candidates.ravel() if i >= 0}
    assert arrays[1].dtype == np.float64


def test_dots_csv_leaves_out_what_is_not_there():
    rows = list(csv.reader(io.StringIO(dots_csv(np.array([[4, -1]]), np.array([[1.5, 0]]), np.array([[1.5, 0]])))))
    assert rows[1:] == [["0", "4", "1.5", "1.5"]]


def test_tiles_say_perplexity_and_its_twin():
    mean, perplexity = loss_tiles(SAID, SAID.mean_loss + 1e-7)
    assert mean["state"] == perplexity["state"] == "rounding"
    assert perplexity["name"] == "Perplexity"
    assert float(perplexity["calculated"].replace("\u2006", "")) == pytest.approx(
        float(np.exp(SAID.loss[1:].mean())), rel=1e-5
    )
    assert loss_tiles(SAID, SAID.mean_loss + 0.1)[0]["state"] == "unequal"
    assert loss_tiles(predict(LOGITS[:1], IDS[:1]), float("nan")) == []


def test_points_are_of_this_text():
    points = loss_points(IDS, SAID, name=lambda i: f"<{i}>")
    worst = int(np.nanargmax(SAID.loss))
    assert f"{int((SAID.rank[1:] == 1).sum())} of 4" in points[0]
    assert f"<{IDS[worst]}> at position {worst}" in points[1]
    assert len(loss_points(IDS[:1], predict(LOGITS[:1], IDS[:1]), name=str)) == 1


def test_scripts_payload_counts_characters_and_bytes():
    rows = [(s, [Token(0, bytes([b])) for b in s.text.encode()]) for s in SENTENCES]
    meta, _ = unpack(scripts_payload(rows))
    for row, sentence in zip(meta["rows"], SENTENCES, strict=True):
        assert row["bytes"] == len(row["tokens"]) == len(sentence.text.encode())
        assert row["ratio"] == pytest.approx(len(sentence.text) / row["bytes"])
    assert "Chinese 0.33" in scripts_point(rows)


def test_csv_has_no_formulas_and_nothing_for_what_is_missing():
    text = csv_text(["a", "b"], [["=1+1", float("nan")], ['"x",\n', None]])
    assert list(csv.reader(io.StringIO(text))) == [["a", "b"], ["'=1+1", ""], ['"x",\n', ""]]


def test_facts_are_plain_text():
    meta, _ = unpack(facts_payload([Fact("Source", "<b>x</b>")]))
    assert meta["facts"] == [{"label": "Source", "value": "<b>x</b>", "note": ""}]

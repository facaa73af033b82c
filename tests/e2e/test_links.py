"""A copied link: page, model, prompt, seed, layer, head, step and branches, on a server that nobody has visited."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, expect

from tests.e2e.conftest import OpenPage, Server
from tests.e2e.test_decode import slider, tokens, wait_for_steps
from ui import branches

TEXT = "Once upon"
FORCED = b" there"
LEFT = [tuple(b" then"), tuple(b" thy!")]


def copied(page: Page) -> str:
    """Press the button with the keyboard; the link that is then in the clipboard."""
    page.evaluate("navigator.clipboard.writeText = async (text) => void (window.copied = text)")
    page.get_by_role("button", name="Copy link").press("Enter")
    expect(page.locator(".copylink [role=status]")).to_have_text("Copied")
    return page.evaluate("window.copied")


def follow(open_page: OpenPage, server: Server, link: str) -> Page:
    return open_page(urlsplit(link).path.strip("/") + "?" + urlsplit(link).query, server=server, model=None)


def test_a_link_opens_the_same_view_on_another_server(fresh_server: Server, open_page: OpenPage) -> None:
    page = open_page(
        "decode",
        prompt=TEXT,
        decode_steps=6,
        decode_seed=3,
        decode_forced=",".join(f"{at}:{token}" for at, token in enumerate(FORCED)),
        decode_branches=branches.to_link(LEFT),
        layer=2,
        head=1,
    )
    wait_for_steps(page, 6)
    slider(page).fill("4")
    link = copied(page)  # before the address has it
    query = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
    assert (query["step"], query["layer"], query["head"]) == ("4", "2", "1")
    assert (query["model"], query["prompt"]) == ("Built-in tiny model", TEXT)
    read = branches.from_link(query["decode_branches"], vocab_size=258, most_tokens=128)
    assert read == LEFT

    again = follow(open_page, fresh_server, link)
    wait_for_steps(again, 6)
    expect(slider(again)).to_have_value("4")
    for name in ("decode step", "step looked at"):
        expect(again.get_by_label(name).first).to_have_value("4")
    expect(again.locator(".panel-head b")).to_have_text("Layer 2, head 1")
    expect(again.locator("canvas.tree")).to_have_attribute("aria-label", re.compile("^tree of 3 branches"))
    expect(again.locator(".st-key-decode_branches .versions")).to_contain_text("thy!")
    assert tokens(again) == list(FORCED)
    slider(again).fill("4")

    # The head's map: the text so far as the prompt, this query's row, and a link to it as good as this one.
    there = follow(open_page, fresh_server, again.locator("a.to-map").get_attribute("href") or "")
    expect(there.get_by_label("Prompt", exact=True)).to_have_value(TEXT + " the")
    expect(there.locator(".title").first).to_contain_text("layer 2", ignore_case=True)
    expect(there.locator(".chip[data-position='13']").first).to_have_attribute("aria-current", "true")
    view = parse_qs(urlsplit(copied(there)).query)
    assert [view[name] for name in ("layer", "head", "query")] == [["2"], ["1"], ["13"]]

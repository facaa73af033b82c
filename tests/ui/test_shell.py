"""The sidebar's link: what it is given."""

from __future__ import annotations

import pytest

from figures.payload import unpack
from tests.pages.test_every_page import open_page
from ui import state


@pytest.mark.parametrize("name", ["overview", "model"])
def test_a_copied_link_names_model_and_prompt_even_where_they_are_as_at_the_start(name: str) -> None:
    at = open_page(name)
    [found] = [e for e in at.sidebar.get("bidi_component") if e.proto.component_name.endswith("glassbox_copylink")]
    assert unpack(found.proto.bytes)[0]["always"] == {"model": state.BUILTIN, "prompt": state.EXAMPLE_PROMPT}

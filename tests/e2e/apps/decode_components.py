"""The components of the Decode page with made-up distributions and key lengths; `case` in the address chooses them."""

import streamlit as st

from figures.cache import Fill, cache_payload
from figures.decode import decode_payload, step_view
from figures.tokens import token_parts
from tests.e2e.apps.decode_data import SAMPLER, key_lengths, logits, piece
from ui import components

# Prompt length and number of steps
CASES = {"small": (5, 5), "long": (512, 3), "one": (1, 1), "start": (5, 0), "empty": (0, 0)}

st.set_page_config(layout="wide")
st.title("Decode components")
st.session_state.runs = st.session_state.get("runs", 0) + 1
prompt_length, count = CASES[st.query_params.get("case", "small")]
count += st.session_state.get("more", 0)
steps = []
for index in range(count):
    found = SAMPLER.distribution(logits(index))
    steps.append(
        step_view(
            found.raw,
            found.probs,
            token=1 + index % 5,
            position=prompt_length + index,
            time_s=0.5 if index == 0 else 0.02 + 0.001 * index,
            forward_tokens=1 if index else prompt_length,
            stages=[(stage.name, stage.kept, stage.removed_mass) for stage in found.stages],
            forced=index == 3,
        )
    )
prompt = [token_parts(b" p%d" % position) for position in range(prompt_length)]
chosen = components.decode(
    decode_payload(prompt, steps, piece=piece, parts=lambda token: token_parts(piece(token)), url="step"), key="decode"
)
st.text(f"runs {st.session_state.runs}, chosen {chosen}")
held = prompt_length + count - 1 if count else 0
components.cache(
    cache_payload(
        key_lengths(held),
        pieces=[*prompt, *(token_parts(piece(step.token)) for step in steps)],
        prompt_length=prompt_length,
        fills=[
            Fill(prompt_length + n, 96 * (prompt_length + n), 96 * (prompt_length + n) + (n == 2)) for n in range(count)
        ],
        url="step",
    ),
    key="cache",
)
if st.button("One more step"):
    st.session_state.more = st.session_state.get("more", 0) + 1
    st.rerun()

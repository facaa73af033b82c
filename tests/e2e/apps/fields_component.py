"""Two maps of 401 made-up tokens: one weight among zeros below the diagonal, and a NaN beside it in the second."""

import numpy as np
import streamlit as st

from figures.masks import Field, fields_payload, masked
from figures.tokens import Token
from ui import components

COUNT, QUERY, KEY = 401, 300, 101

st.set_page_config(layout="wide")
st.title("Fields")
weights = np.zeros((COUNT, COUNT), np.float32)
weights[QUERY, KEY] = 1
broken = weights.copy()
broken[QUERY, KEY + 1] = np.nan
allowed = np.tri(COUNT, dtype=bool)
tokens = [Token(id=n, piece=b" %d" % n) for n in range(COUNT)]
fields = [Field("Weights", top=1.0), Field("With a NaN", top=1.0)]
arrays = [masked(weights, allowed), masked(broken, allowed)]
components.mount("fields", fields_payload(tokens, fields, arrays), key="fields")

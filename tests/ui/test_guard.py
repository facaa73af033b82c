from __future__ import annotations

from streamlit.testing.v1 import AppTest

from lmcore.errors import ConfigError
from ui import guard

ERROR = ConfigError(
    "d_ff is 10922", expected="a multiple of 256", where="config.json, field intermediate_size", todo="Use *11008*."
)


def test_message_says_found_expected_where_and_what_to_do_in_this_order():
    words = guard.message(ERROR).replace("\\", "")
    assert words == (
        "**d_ff is 10922, expected a multiple of 256.** In config.json, field intermediate_size. Use *11008*."
    )


def test_message_without_the_optional_parts():
    assert guard.message(ConfigError("no layers")) == "**no layers.**"


def test_words_of_the_error_are_not_markdown():
    assert r"Use \*11008\*\." in guard.message(ERROR)


def _lmcore_error():
    import streamlit as st

    from lmcore.errors import ConfigError
    from ui.guard import guard

    st.write("before")
    with guard():
        raise ConfigError("no layers", todo="Add one.")
    st.write("after")


def test_lmcore_error_is_shown_where_it_happened_and_the_rest_is_drawn():
    at = AppTest.from_function(_lmcore_error).run()
    assert [e.value.replace("\\", "") for e in at.error] == ["**no layers.** Add one."]
    assert [m.value for m in at.markdown] == ["before", "after"]
    assert not at.exception


def _our_own_mistake():
    from ui.guard import guard

    with guard():
        raise KeyError("secret detail")


def test_any_other_error_is_an_apology_without_details_which_go_to_the_terminal(capfd):
    at = AppTest.from_function(_our_own_mistake).run()
    assert [e.value for e in at.error] == [guard.APOLOGY]
    assert "secret detail" not in at.error[0].value
    assert not at.exception
    assert "KeyError: 'secret detail'" in capfd.readouterr().err


def _stop_inside():
    import streamlit as st

    from ui.guard import guard

    with guard():
        st.stop()
    st.write("never")


def test_streamlits_own_signals_pass_through():
    at = AppTest.from_function(_stop_inside).run()
    assert not at.error
    assert not at.markdown


def _failing_fragment():
    import streamlit as st

    from lmcore.errors import ConfigError
    from ui import guard

    @guard.fragment
    def part():
        if st.toggle("break", key="break"):
            raise ConfigError("broken")

    part()
    st.write("after")


def test_error_in_a_fragment_is_shown_in_its_place():
    at = AppTest.from_function(_failing_fragment).run()
    assert not at.error
    at.toggle(key="break").set_value(True).run()
    assert [e.value for e in at.error] == ["**broken.**"]
    assert [m.value for m in at.markdown] == ["after"]

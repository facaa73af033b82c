"""The app of the attention component's tests, for a second file of them."""

from tests.e2e.apps.attention_component import main

main()

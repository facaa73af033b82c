"""Training of the teaching family: text and tokenizer, an n-gram model to beat, the loop, what is written."""

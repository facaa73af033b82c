"""Side-by-side measurements against peers: each prints our time, theirs, and the ratio, taken in one run."""

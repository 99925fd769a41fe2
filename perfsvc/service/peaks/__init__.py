"""The measured peaks of a GPU: how fast it computes, and how fast its memory and its L2 cache deliver."""

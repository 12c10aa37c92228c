"""The parts of ``tools/bench``: one module a case, each with its peer, and what they share."""

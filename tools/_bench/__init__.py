"""The parts of ``tools/bench``: one module for each case with its peer, and common modules."""

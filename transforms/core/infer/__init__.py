"""Kinds of features, inferred from texts or from typed columns."""

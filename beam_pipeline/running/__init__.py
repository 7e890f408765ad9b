"""Beam at work: a plan becomes a dataset, locally or on an engine."""

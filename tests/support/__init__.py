"""Helpers that tests share: datasets, readers, faults and measurements."""

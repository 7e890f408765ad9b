"""Readers of each source format. Never Beam."""

"""Tests of `beam_pipeline.comparison`."""

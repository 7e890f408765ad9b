"""Tests that start the program or run pipelines."""

"""Datasets made of datasets: their records are copied as they are stored."""

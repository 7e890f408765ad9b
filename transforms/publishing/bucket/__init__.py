"""Targets in object stores: held, checked, published by their manifest."""

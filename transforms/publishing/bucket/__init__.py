"""Targets in object stores: hold, check, and publish by writing the manifest."""

"""Manifests of AutoML, and of tfrecorder without a header."""

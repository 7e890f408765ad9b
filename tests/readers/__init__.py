"""Tests that read with TensorFlow, TFDS and other readers."""

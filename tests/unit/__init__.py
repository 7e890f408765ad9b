"""Pure tests: no process of their own, no pipeline, no TensorFlow."""

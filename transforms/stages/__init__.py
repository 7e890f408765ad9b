"""The Beam stages, a verb each. They never import one another."""

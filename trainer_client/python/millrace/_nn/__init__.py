"""How the gradients of millrace.nn's modules leave torch."""

"""Small networks: layers, normalisation and the training loop, on arrays alone (JAX only when used)."""

"""Small networks on arrays alone: layers, normalisation, the training loop. JAX only when used."""

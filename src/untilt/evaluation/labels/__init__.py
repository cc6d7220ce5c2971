"""Values of rankers from a sample of grades, with clicks as a prediction of the others."""

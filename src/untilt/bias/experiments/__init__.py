"""Position bias from experiments: shuffled tops and swapped documents."""

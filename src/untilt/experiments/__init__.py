"""Layer package: experiments."""

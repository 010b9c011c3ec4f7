"""Completions, and exactly what they were drawn from."""

from trustax.sampling.sampler import Generation, Sampler

__all__ = ["Generation", "Sampler"]

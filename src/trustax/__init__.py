"""trustax: reinforcement learning of language models under a divergence trust region, in JAX."""

__version__ = "0.1.0"

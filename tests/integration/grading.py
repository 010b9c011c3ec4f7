"""A verdict that an untrained policy earns now and then."""


def even_digits(*, completion: str, example_prompt: str, answer: str, metadata: str) -> float:
    """The share of characters that are even in the ASCII table: half of them by chance."""
    del example_prompt, answer, metadata
    return sum(ord(char) % 2 == 0 for char in completion) / max(len(completion), 1)

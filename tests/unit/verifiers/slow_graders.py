"""Functions that a worker imports: what a user may hand to the verifier 'python'."""

import os
import time


def loops(*, completion: str, example_prompt: str, answer: str, metadata: str) -> float:
    while completion == "loop":
        pass
    if completion == "die":
        os._exit(1)
    if completion == "raise":
        raise KeyError(completion)
    print("what a grader prints is no answer")
    return completion == answer


def sleeps(*, completion: str, example_prompt: str, answer: str, metadata: str) -> float:
    time.sleep(0.2)
    return 1.0

"""Counting what is traced and compiled."""

import contextlib
from collections.abc import Callable, Iterator

import jax


@contextlib.contextmanager
def compilations() -> Iterator[Callable[[], int]]:
    """Yield a function that says how many programs were traced, lowered or compiled since."""
    events = []

    def listen(event: str, duration: float, **_: object) -> None:
        if event.startswith("/jax/core/compile/"):
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield lambda: len(events)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)

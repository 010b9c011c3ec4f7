"""Times of a flow: x_t = (1 − t)·x_0 + t·ε, v = ε − x_0; a sampler walks from noise at t = 1 down to data at t = 0.

So every step is signed: dt = t_next − t < 0.
"""

from collections.abc import Sequence

import numpy as np

Times = Sequence[float] | np.ndarray


def time_grid(steps: int, *, shift: float = 1.0, end: float = 0.0) -> np.ndarray:
    """Divide [end, 1] into steps, downwards.

    ``t_k = s·u_k / (1 + (s − 1)·u_k)`` with u uniform on [0, 1], then scaled to end at ``end``. A shift s > 1 spends
    more steps near the noise, as the schedulers of large images do.

    Args:
        steps: how many steps; the grid has one point more.
        shift: s > 0; 1 is uniform.
        end: the last time, in [0, 1).

    Raises: ValueError for numbers out of range.

    References: Esser et al., "Scaling Rectified Flow Transformers", arXiv 2403.03206, eq. 23.

    >>> time_grid(4).tolist()
    [1.0, 0.75, 0.5, 0.25, 0.0]
    >>> time_grid(2, shift=3.0).tolist()
    [1.0, 0.75, 0.0]
    """
    problems = [] if steps >= 1 else [f"steps = {steps}, expected at least 1"]
    problems += [] if shift > 0 else [f"shift = {shift:g}, expected a number above 0 (1 is a uniform grid)"]
    problems += [] if 0 <= end < 1 else [f"end = {end:g}, expected a time in [0, 1)"]
    if problems:
        raise ValueError("; ".join(problems))
    uniform = np.linspace(1.0, 0.0, steps + 1)
    return end + (1.0 - end) * shift * uniform / (1.0 + (shift - 1.0) * uniform)


def time_problems(times: Times) -> list[str]:
    """What is wrong with a grid of times: it must fall strictly, within [0, 1]."""
    grid = np.asarray(times, np.float64)
    if grid.ndim != 1 or len(grid) < 2:
        return [f"times have shape {grid.shape}, expected [T + 1] with at least one step"]
    if not np.all(np.isfinite(grid)) or grid.min() < 0 or grid.max() > 1:
        return [f"times reach from {grid.min():g} to {grid.max():g}, expected [0, 1]: 1 is noise, 0 is data"]
    rising = np.flatnonzero(np.diff(grid) >= 0)
    if len(rising):
        k = int(rising[0])
        return [f"times must fall, but t[{k}] = {grid[k]:g} and t[{k + 1}] = {grid[k + 1]:g}: a flow runs from 1 to 0"]
    return []

"""FLOPs of a traced program, loop bodies multiplied out (a compiler's own figure counts them once)."""

import math
from typing import Any

from jax.extend import core


def count_flops(jaxpr: core.Jaxpr, *, while_trips: int = 1) -> float:
    """Multiplications and additions of all matrix products in ``jaxpr``, over all devices.

    Args:
      jaxpr: The traced program; what is recomputed in a backward pass stands in it twice.
      while_trips: How often the body of a ``while`` loop runs, which no trace knows.
    """
    total = 0.0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "dot_general":
            total += _dot(equation)
        elif name in ("ragged_dot", "ragged_dot_general"):
            total += 2.0 * math.prod(_shape(equation.outvars[0])) * _shape(equation.invars[0])[-1]
        inner = sum(count_flops(sub, while_trips=while_trips) for sub in _inner(equation.params))
        total += inner * {"scan": equation.params.get("length", 1), "while": while_trips}.get(name, 1)
    return total


def _dot(equation: Any) -> float:
    ((contracted, _), _) = equation.params["dimension_numbers"]
    left = _shape(equation.invars[0])
    return 2.0 * math.prod(_shape(equation.outvars[0])) * math.prod(left[axis] for axis in contracted)


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape


def _inner(params: dict[str, Any]) -> list[Any]:
    found = []
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                found.append(item.jaxpr)
            elif isinstance(item, core.Jaxpr):
                found.append(item)
    return found

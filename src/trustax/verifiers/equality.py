"""Whether a given answer equals the right one: True, False, or None where it takes algebra to say."""

from collections.abc import Sequence

from trustax.verifiers.values import Equation, Formula, Inequality, Infinity, Number, Ordered, Unordered, Value, Words


def equal(*, right: Value, given: Value) -> bool | None:
    """Compare two answers. Not symmetric: ``x < 7`` may be answered by an interval, not the other way round."""
    if isinstance(right, Number) and isinstance(given, Number):
        return equal_numbers(right, given)
    if isinstance(right, Equation) or isinstance(given, Equation):
        return _equal_equations(right, given)
    if isinstance(right, Inequality):
        if isinstance(given, Inequality) and given.name != right.name:
            return False
        return equal(right=right.interval, given=given.interval if isinstance(given, Inequality) else given)
    if isinstance(given, Inequality):
        return False
    if isinstance(right, Ordered) and isinstance(given, Ordered):
        if (right.opening, right.closing, len(right.items)) != (given.opening, given.closing, len(given.items)):
            return False
        return _all([equal(right=r, given=g) for r, g in zip(right.items, given.items, strict=True)])
    if isinstance(right, Unordered) and isinstance(given, Unordered):
        return _equal_unordered(right, given)
    if isinstance(right, Infinity | Words) and isinstance(given, Infinity | Words):
        return right == given
    if isinstance(right, Formula) and isinstance(given, Formula):
        if right.unit is not None and given.unit is not None and right.unit != given.unit:
            return False
        return True if right.text == given.text else None
    if isinstance(right, Formula) or isinstance(given, Formula):
        return None
    return False  # of two different kinds, both understood


def equal_numbers(right: Number, given: Number) -> bool:
    """Exact equality, with what a unit and a percent sign are worth.

    A unit that only one side names is taken as understood. "50" answers "50%" and the other way round (the question
    says "what percentage"), but only beyond 1: "0.5%" is no answer to "0.5".
    """
    if right.percent != given.percent and right.unit is None and given.unit is None:
        percent, bare = (right, given) if right.percent else (given, right)
        return percent.value == bare.value or (percent.value * 100 == bare.value and abs(bare.value) > 1)
    if right.unit is None or given.unit is None or "" in (right.unit.kind, given.unit.kind):
        return right.value == given.value
    return right.unit.kind == given.unit.kind and right.value * right.unit.factor == given.value * given.unit.factor


def _equal_equations(right: Value, given: Value) -> bool | None:
    if isinstance(right, Equation) and isinstance(given, Equation) and right.name != given.name:
        return False
    return equal(
        right=right.value if isinstance(right, Equation) else right,
        given=given.value if isinstance(given, Equation) else given,
    )


def _equal_unordered(right: Unordered, given: Unordered) -> bool | None:
    if "union" in (right.kind, given.kind) and right.kind != given.kind:
        return False
    theirs, ours = list(given.items), list(right.items)
    if "set" in (right.kind, given.kind):
        theirs, ours = _distinct(theirs), _distinct(ours)
    if len(theirs) != len(ours):
        return False
    undecided = False
    for item in ours:
        verdicts = [equal(right=item, given=other) for other in theirs]
        if True in verdicts:
            del theirs[verdicts.index(True)]
        elif None in verdicts:
            undecided = True
        else:
            return False
    return None if undecided else True


def _distinct(items: list[Value]) -> list[Value]:
    kept: list[Value] = []
    for item in items:
        if all(equal(right=other, given=item) is not True for other in kept):
            kept.append(item)
    return kept


def _all(verdicts: Sequence[bool | None]) -> bool | None:
    if False in verdicts:
        return False
    return None if None in verdicts else True

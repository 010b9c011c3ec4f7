"""A plan as a table, and the one change that would make it fit."""

from rich.console import Console
from rich.table import Table

from trustax.experiment.plan import Plan
from trustax.parallel.chips import GIB


def print_plan(console: Console, plan: Plan) -> None:
    """Memory, work and messages per chip, one column a phase; then the verdict in one line."""
    table = Table(title=f"{plan.parameters / 1e9:.2f} billion parameters on {plan.chips} chips of {plan.topology}")
    table.add_column("per chip")
    for phase in plan.phases:
        table.add_column(phase.name, justify="right")

    def row(name: str, values: list[str]) -> None:
        table.add_row(name, *values)

    phases = plan.phases
    row("held (parameters, optimizer, batch)", [f"{phase.arguments / GIB:.2f} GiB" for phase in phases])
    row("temporaries (activations, caches)", [f"{phase.temporaries / GIB:.2f} GiB" for phase in phases])
    row("peak", [f"{phase.peak / GIB:.2f} GiB" for phase in phases])
    row("matrix products", [f"{phase.flops / 1e12:.2f} TFLOP" for phase in phases])
    row("bytes moved, at least", [f"{phase.bytes_moved / GIB:.1f} GiB" for phase in phases])
    for kind in sorted({kind for phase in phases for kind in phase.collectives}):
        sent = [phase.collectives.get(kind, (0, 0.0)) for phase in phases]
        row(kind, [f"{count} × {size / count / 2**20:.1f} MiB" if count else "-" for count, size in sent])
    for resource in ("compute", "memory", "links"):
        row(f"roofline: {resource}", [f"{phase.seconds[resource]:.3f} s" for phase in phases])
    row("bound by", [phase.bound for phase in phases])
    row("compiled in", [f"{phase.compile_seconds:.0f} s" for phase in phases])
    console.print(table)
    console.print(
        f"parameters {plan.parameter_bytes / GIB:.2f} GiB, optimizer {plan.optimizer_bytes / GIB:.2f} GiB, KV cache of "
        f"{plan.tokens} tokens {plan.cache_bytes / GIB:.2f} GiB a chip if split over all",
        soft_wrap=True,
    )
    console.print(verdict(plan), soft_wrap=True)


def verdict(plan: Plan) -> str:
    """Whether it fits, in one line."""
    needs, has = plan.needs / GIB, plan.chip.memory / GIB
    worst = max(plan.phases, key=lambda phase: phase.peak)
    if plan.fits:
        return (
            f"fits: {worst.name} needs {needs:.2f} of {has:.0f} GiB a chip ({100 * (1 - needs / has):.0f} % to spare)"
        )
    return f"does not fit: {worst.name} needs {needs:.2f} GiB a chip, has {has:.0f} GiB; {_remedy(plan, worst.name)}"


def _remedy(plan: Plan, phase: str) -> str:
    worst = next(p for p in plan.phases if p.name == phase)
    if worst.arguments > plan.chip.memory:
        return "what is held alone is too much: more chips in mesh.fsdp"
    if phase == "generate":
        return "fewer rollout.prompts_per_step at a time, or more chips in mesh.fsdp"
    return "temporaries are too much: double train.micro_batches, or set policy.remat=true if it is not"

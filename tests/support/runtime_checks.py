"""The type checker that pytest hangs on the package's functions (see pyproject.toml)."""

from beartype import BeartypeConf, beartype

# A whole number where a float is asked for is fine, as Python's own typing rules have it.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))

"""Print the lower bounds of pyproject.toml as constraints, for `make test-lowest`."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
print("\n".join(requirement.replace(">=", "==") for requirement in [*project["dependencies"], *extras]))

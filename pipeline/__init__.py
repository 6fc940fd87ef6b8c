"""From a click log to bandit models: formats, engines, artefacts, stages and the `pbm` command."""

from importlib.metadata import version

__version__ = version("pbm-bandits")

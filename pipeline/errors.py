"""What can be wrong with somebody's data. The command line turns each into one message and exit code 1."""


class DataError(Exception):
    """A file or its content is wrong; the message names the value, the rule, the place and the way out."""


class FormatError(DataError):
    """A format declaration is wrong, or is not the format of this log."""


class LogError(DataError):
    """The log cannot be read, or too much of it is broken."""


class ArtefactError(DataError):
    """An artefact is missing, broken, made from other inputs, or cannot be written."""


class ClusterError(DataError):
    """Spark cannot be started or reached, or something is missing where it runs."""

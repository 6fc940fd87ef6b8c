"""What the commands share: the app, how errors become messages, options, and the shape of what is printed."""

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.errors import DataError

if TYPE_CHECKING:
    from pipeline.cluster import Cluster

app = typer.Typer(
    name="pbm",
    help="From a click log to position-based models and bandit experiments, stage by stage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Workspace = Annotated[
    Path, typer.Option("--workspace", "-w", envvar="PBM_WORKSPACE", help="Folder of the artefacts.", metavar="DIR")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the closing result as JSON.")]
SparkMaster = Annotated[
    str | None,
    typer.Option(
        help="With --engine spark: local[N], spark://HOST:PORT, yarn or k8s://https://HOST:PORT.",
        metavar="URL",
        show_default="local[*]",
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(help="With --engine spark: a setting of Spark's, e.g. spark.executor.memory=8g; again for more.", metavar="K=V"),
]
DEFAULT_WORKSPACE = Path("data")


def _version(asked: bool) -> None:
    if asked:
        from pipeline import __version__

        typer.echo(f"pbm {__version__}")
        raise typer.Exit


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command of the app; errors in the data become one message and exit code 1."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except DataError as error:
            typer.echo(f"pbm: error: {error}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.echo("pbm: interrupted", err=True)
            raise typer.Exit(130) from None

    app.command()(run)
    return function


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    pass


def cluster_of(wanted: bool, master: str | None, conf: list[str] | None) -> "Cluster | None":
    """The Spark that was asked for, if one was."""
    if not wanted:
        if master is not None or conf:
            raise typer.BadParameter("--spark-master and --spark-conf go with --engine spark")
        return None
    from pipeline.cluster import LOCAL, Cluster, settings_of

    return Cluster(master or LOCAL, settings_of(conf or []))


def aligned(rows: list[tuple[str, Any]]) -> str:
    """Names and values in two columns."""
    texts = [(name, f"{value:,}" if isinstance(value, int) else value) for name, value in rows]
    names, values = (max(len(text[i]) for text in texts) for i in (0, 1))
    return "\n".join(f"{name:<{names}}  {value:>{values}}" for name, value in texts)


def finite(value: Any) -> Any:
    """The same with null for what JSON has no word for."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def note(text: str) -> None:
    typer.echo(f"pbm: note: {text}", err=True)

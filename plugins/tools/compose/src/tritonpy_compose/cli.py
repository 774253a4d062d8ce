"""The command `corectl compose`; the rest of the distribution is imported when it is called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from tritonpy.hookspecs import hookimpl  # `tritonpy.plugin` imports numpy, and this runs for `corectl --help`


@hookimpl
def cli_commands(group: click.Group) -> None:
    """See `CliHooks`."""
    group.add_command(compose)


@click.command(short_help="Make an image or an environment with the plugins that models need.")
@click.option(
    "--model-repository",
    "--model-store",
    "repositories",
    multiple=True,
    metavar="DIR",
    help="The models to look at, which are mounted into the image. May be repeated.",
)
@click.option(
    "--backend", "backends", multiple=True, metavar="NAME", help="Include a backend. May be repeated."
)
@click.option(
    "--repoagent",
    "agents",
    multiple=True,
    metavar="NAME",
    help="Include a repository agent. May be repeated.",
)
@click.option("--cache", "caches", multiple=True, metavar="NAME", help="Include a cache. May be repeated.")
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="KIND:NAME",
    help="Include another plugin, such as frontends:tfserving. May be repeated.",
)
@click.option(
    "--package",
    "packages",
    multiple=True,
    metavar="REQUIREMENT",
    help="Include a package, such as 'scipy>=1.13', for Python models. May be repeated.",
)
@click.option(
    "--constraint",
    "constraints",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Hold versions to those of a constraint file of pip. May be repeated.",
)
@click.option(
    "--find-links",
    "find_links",
    multiple=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="A wheel, a folder with wheels, or the folder of a distribution, instead of what is installed here. "
    "May be repeated.",
)
@click.option(
    "--backend-directory",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where backends lie that are files; it is mounted into the image, too.",
)
@click.option(
    "--output-name", default="tritonserver", show_default=True, metavar="NAME", help="Name of the image."
)
@click.option(
    "--work-dir",
    default="compose",
    show_default=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the recipe is written.",
)
@click.option(
    "--base", metavar="IMAGE", help="The image to begin with.  [default: python:3.X-slim of this Python]"
)
@click.option(
    "--enable-gpu", is_flag=True, help="Take the wheels for GPUs, and give the container all of them."
)
@click.option(
    "--vendor",
    is_flag=True,
    help="Put every wheel beside the recipe, so that building needs no package index.",
)
@click.option(
    "--skip-pull", is_flag=True, help="Do not ask for a newer base image than the one that is there."
)
@click.option("--dry-run", is_flag=True, help="Write the recipe, and build nothing.")
@click.option(
    "--engine",
    type=click.Choice(("docker", "podman", "buildah")),
    help="The program that builds it.  [default: the first of them that is there]",
)
@click.option(
    "--venv",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Make an environment there instead, which may be moved.",
)
@click.argument("serve_arguments", metavar="[-- SERVE_OPTION...]", nargs=-1, type=click.UNPROCESSED)
def compose(
    repositories: Sequence[str],
    backends: Sequence[str],
    agents: Sequence[str],
    caches: Sequence[str],
    plugins: Sequence[str],
    packages: Sequence[str],
    constraints: Sequence[Path],
    find_links: Sequence[Path],
    backend_directory: Path | None,
    output_name: str,
    work_dir: Path,
    base: str | None,
    enable_gpu: bool,
    vendor: bool,
    skip_pull: bool,
    dry_run: bool,
    engine: str | None,
    venv: Path | None,
    serve_arguments: Sequence[str],
) -> int:
    """Make an image with a server and the plugins that models need, and no others.

    The models of the repositories are looked at: their backends, batching strategies, repository agents and
    caches, and the requirements.txt of Python models. What they do not tell is named with --backend and the
    like. A recipe is written: a Containerfile, a Compose file, and requirements with the hash of every wheel.
    Then docker, podman or buildah builds it. Options of `corectl serve` behind -- are those of the image.
    """
    from tritonpy.errors import TritonError

    from tritonpy_compose.composition import Wishes, compose_environment, compose_image

    named = [("backends", name) for name in backends]
    named += [("repo_agents", name) for name in agents]
    named += [("caches", name) for name in caches]
    named += [_plugin(text) for text in plugins]
    wishes = Wishes(
        repositories, named, packages, constraints, find_links, backend_directory, serve_arguments, enable_gpu
    )
    try:
        if venv is not None:
            compose_environment(wishes, venv)
            return 0
        return compose_image(
            wishes,
            work_dir,
            output_name,
            base,
            engine_name=engine,
            is_offline=vendor,
            skips_pull=skip_pull,
            builds=not dry_run,
        )
    except TritonError as error:
        raise click.ClickException(error.message) from error
    except OSError as exc:
        raise click.ClickException(f"'{exc.filename}': {exc.strerror}") from exc


def _plugin(text: str) -> tuple[str, str]:
    kind, _, name = text.partition(":")
    if not name:
        raise click.UsageError(f"--plugin '{text}': expected KIND:NAME, such as frontends:tfserving")
    return kind, name

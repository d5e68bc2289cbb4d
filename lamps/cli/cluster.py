"""``lamps cluster``: start nodes safely, run searches as jobs, and look whether all is well."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

import click

from lamps.cli.output import emit, output_options
from lamps.config import load_settings, parse_bytes
from lamps.errors import ConfigError, StateError

DASHBOARD = "http://127.0.0.1:8265"


@click.group()
def cluster() -> None:
    """Start nodes, run searches as jobs, and look whether all is well.

    \b
    Example:
      lamps cluster start --head
      lamps cluster submit search reviews.csv --name reviews --store postgresql://lamps@db/lamps
      lamps cluster doctor --address auto
    """  # noqa: D301


def dashboard_option(command: click.decorators.FC) -> click.decorators.FC:
    """``--dashboard URL``: where the Jobs API answers."""
    return click.option(
        "--dashboard",
        metavar="URL",
        default=DASHBOARD,
        show_default=True,
        envvar="RAY_API_SERVER_ADDRESS",
        help="Ray's dashboard, where the Jobs API answers.",
    )(command)


@cluster.command()
@click.option("--head", is_flag=True, help="Start the head of a new cluster.")
@click.option("--address", metavar="HOST:PORT", help="Join the cluster of this head.")
@click.option("--port", type=int, default=6379, show_default=True, help="Port of the head.")
@click.option("--node-ip", metavar="IP", help="Address of this machine for the other nodes.")
@click.option("--cpus", type=click.IntRange(min=0), help="CPUs of this node.  [default: all]")
@click.option("--object-store", metavar="SIZE", help="Object store, such as 1GB.")
@click.option(
    "--dashboard-host",
    default="127.0.0.1",
    show_default=True,
    help="Where dashboard and Jobs API listen; leave it and use an SSH tunnel.",
)
@click.option("--dashboard-port", type=int, default=8265, show_default=True, help="Their port.")
@click.option(
    "--client-port",
    type=int,
    default=0,
    help="Open the port for ray:// addresses on the node's address.  [default: closed]",
)
@click.option("--temp-dir", metavar="DIR", help="Folder of Ray's sessions and logs.")
def start(
    head: bool,
    address: str | None,
    port: int,
    node_ip: str | None,
    cpus: int | None,
    object_store: str | None,
    dashboard_host: str,
    dashboard_port: int,
    client_port: int,
    temp_dir: str | None,
) -> None:
    """Start a node of Ray on this machine, with the token on and the doors closed.

    The head makes a token that only its owner can read (~/.ray/auth_token) before anything
    listens; copy it to the other nodes. Dashboard and Jobs API listen on the loopback address, the
    port for ray:// addresses is closed.

    \b
    Example:
      lamps cluster start --head
      lamps cluster start --address head:6379
    """  # noqa: D301
    from lamps.cluster import nodes
    from lamps.scheduler.ray_token import token_path

    if head == (address is not None):
        raise click.UsageError("say either --head or --address HOST:PORT")
    store_bytes = None if object_store is None else parse_bytes(object_store)
    if head:
        nodes.start_head(
            port=port,
            node_ip=node_ip,
            cpus=cpus,
            dashboard_host=dashboard_host,
            dashboard_port=dashboard_port,
            client_port=client_port,
            object_store_bytes=store_bytes,
            temp_dir=temp_dir,
        )
        click.echo(f"the head listens on port {port}; token: {token_path()}", err=True)
        click.echo(f"dashboard: http://{dashboard_host}:{dashboard_port}", err=True)
        click.echo("search on it with: lamps search ... --address auto", err=True)
    elif address is not None:
        nodes.join(
            address,
            node_ip=node_ip,
            cpus=cpus,
            object_store_bytes=store_bytes,
            temp_dir=temp_dir,
        )
        click.echo(f"this machine is a node of {address}", err=True)


@cluster.command()
@click.option("--force", is_flag=True, help="Kill the processes at once.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def stop(force: bool, yes: bool) -> None:
    """End all of your processes of Ray on this machine, whichever cluster they belong to.

    \b
    Example:
      lamps cluster stop --yes
    """  # noqa: D301
    from lamps.cluster import nodes

    if not yes:
        click.confirm("End every process of Ray on this machine?", abort=True, err=True)
    nodes.stop(force=force)
    click.echo("no process of Ray is left on this machine", err=True)


@cluster.command(context_settings={"allow_interspersed_args": False})
@dashboard_option
@click.option(
    "--python",
    default=sys.executable,
    metavar="PATH",
    help="The interpreter on the cluster.  [default: the path of this one]",
)
@click.option("--working-dir", metavar="DIR", help="Folder that travels with the job.")
@click.option("--job-cpus", type=float, default=0.0, help="CPUs that the job itself occupies.")
@click.option("--no-follow", is_flag=True, help="Do not wait; print the job's id.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, required=True)
def submit(
    dashboard: str,
    python: str,
    working_dir: str | None,
    job_cpus: float,
    no_follow: bool,
    words: Sequence[str],
) -> int:
    """Run a search, a resume or a replication on the cluster, as a job.

    Asked again under the same name it joins the job that runs, says so where the same command has
    succeeded, and goes on with the run where it has failed or gets another budget. What the job
    prints comes here; Ctrl-C leaves it running.

    \b
    Example:
      lamps cluster submit search reviews.csv --name reviews --store postgresql://lamps@db/lamps
    """  # noqa: D301
    from lamps.cluster.jobs import Jobs, job_name

    job_name(words)  # what is wrong with the command needs no cluster to be told
    jobs = Jobs(dashboard)
    job = jobs.submit(words, python=python, working_dir=working_dir, cpus=job_cpus)
    verb = "submitted" if job.fresh else f"there already ({job.status.lower()})"
    click.echo(f"job {job.id} {verb}", err=True)
    if no_follow:
        click.echo(job.id)
        return 0
    try:
        job = jobs.follow(job.id, lambda piece: click.echo(piece, nl=False))
    except KeyboardInterrupt:
        click.echo(
            f"the job goes on; again: lamps cluster logs {job.id} --follow · end it: "
            f"lamps cluster cancel {job.id}",
            err=True,
        )
        raise
    click.echo(f"job {job.id}: {job.status.lower()}. {job.message}", err=True)
    return _exit_code(job.status, job.exit_code)


def _exit_code(status: str, exit_code: int | None) -> int:
    """The job's own exit code, so that a script cannot tell a job from a command."""
    if status == "SUCCEEDED":
        return 0
    if status == "STOPPED":
        return 130
    return exit_code if exit_code and exit_code < 126 else 1


@cluster.command(name="jobs")
@dashboard_option
@output_options
def jobs_(dashboard: str, as_json: bool, nl: bool) -> None:
    """List the jobs that lamps has submitted.

    \b
    Example:
      lamps cluster jobs --json
    """  # noqa: D301
    from lamps.cluster.jobs import Jobs

    rows = [dataclasses.asdict(job) for job in Jobs(dashboard).all()]
    for row in rows:
        del row["fresh"]
    emit(rows, as_json=as_json, nl=nl, columns=["id", "status", "exit_code", "message"])


@cluster.command()
@dashboard_option
@click.option("-f", "--follow", is_flag=True, help="Until the job ends.")
@click.argument("job")
def logs(dashboard: str, follow: bool, job: str) -> None:
    """Show what JOB has printed: the id of a job, or the name of its run.

    \b
    Example:
      lamps cluster logs reviews --follow
    """  # noqa: D301
    from lamps.cluster.jobs import Jobs

    jobs = Jobs(dashboard)
    found = jobs.find(job)
    if follow:
        jobs.follow(found.id, lambda piece: click.echo(piece, nl=False))
    else:
        click.echo(jobs.logs(found.id), nl=False)


@cluster.command()
@dashboard_option
@click.argument("job")
def cancel(dashboard: str, job: str) -> None:
    """Ask JOB to end; a search stops gently and can be resumed.

    \b
    Example:
      lamps cluster cancel reviews
    """  # noqa: D301
    from lamps.cluster.jobs import Jobs

    jobs = Jobs(dashboard)
    found = jobs.find(job)
    if not jobs.stop(found.id):
        raise StateError(f"job {found.id} has ended already ({found.status.lower()})")
    click.echo(f"job {found.id} was asked to end", err=True)


@cluster.command()
@click.option("--address", metavar="HOST:PORT", help="The cluster; auto for the one here.")
@click.option("--dashboard", metavar="URL", help="Ray's dashboard, such as " + DASHBOARD)
@click.option("--store", metavar="URL", help="The database that searches will use.")
@click.option("--artifacts", metavar="URL", help="The artifact root that searches will use.")
@output_options
def doctor(
    address: str | None,
    dashboard: str | None,
    store: str | None,
    artifacts: str | None,
    as_json: bool,
    nl: bool,
) -> int:
    """Look at token, ports, nodes, database and artifact root; change nothing.

    Exit code 1 if anything is unsafe or would make a search fail.

    \b
    Example:
      lamps cluster doctor --address auto --dashboard http://127.0.0.1:8265
    """  # noqa: D301
    from lamps.cluster.doctor import examine

    if artifacts and address is None:
        raise ConfigError("--artifacts is looked at from the nodes; say which with --address")
    settings = load_settings({"artifacts": artifacts})
    findings = examine(
        address=address, dashboard=dashboard, store=store, artifacts=settings.artifacts
    )
    emit([f.as_dict() for f in findings], as_json=as_json, nl=nl)
    return 1 if any(f.level == "bad" for f in findings) else 0

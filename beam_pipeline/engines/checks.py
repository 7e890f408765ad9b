"""Check a job before it is planned: job servers, what workers see, Dataflow's needs.

Without these checks Beam would wait for a day for who does not answer, or search
Google's services for what is missing, and fail only after minutes.
"""

import ipaddress
import os
import pathlib
import re
import shutil
import socket
from collections.abc import Iterable, Sequence

from beam_pipeline.engines.engine import (
    JobSettings,
    WorkerPlace,
    flag_given,
    has_flag,
    starts_elsewhere,
)
from beam_pipeline.version import __version__
from transforms.errors import SpecError, TargetError, UsageError
from transforms.storage import paths

# Masters of Flink that are a cluster within the job server.
WITHIN_SERVER = ("[local]", "[auto]")
START_THERE = (
    "Let workers be started where the engine runs, by Beam's flags (after -- on the "
    "command line): by a pool beside it, with --environment_type=EXTERNAL "
    "--environment_config=localhost:50000, or from its image, with "
    '--environment_type=PROCESS --environment_config={"command":'
    '"/opt/venv/bin/beam-tfrecord-worker"}.'
)
"""What to do where the engine's machines do not see the file that starts workers."""
# Java's words for a file that is not there or that cannot be run, and Prism's.
_NOT_STARTED = re.compile(r"\berror=(2|13), |process failed to start")
# How long a job server may take to answer.
_ASK_SECONDS = 10.0


def _cache_folder() -> pathlib.Path:
    """Returns where `scripts/cluster` puts what it brings."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "beam-tfrecord"


def jar_path(artifact: str, version: str) -> pathlib.Path:
    """Returns where a job server of Beam is, brought or not.

    Args:
      artifact: as Beam names it.
      version: of Beam.
    """
    return _cache_folder() / "jars" / f"{artifact}-{version}.jar"


def find_jar(artifact: str, version: str) -> pathlib.Path | None:
    """Returns the job server that is there: as published, else as put together last."""
    published = jar_path(artifact, version)
    if published.is_file():
        return published
    made = published.parent.glob(f"{artifact}-{version}-of-*.jar")
    return max(made, key=lambda path: path.stat().st_mtime_ns, default=None)


def find_java() -> str:
    """Returns the path of `java`: of JAVA_HOME, else of the PATH.

    Raises:
      UsageError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    where = os.path.join(home, "bin", "java") if home else "java"
    path = shutil.which(where)
    if path is None:
        raise UsageError(
            f"Job servers need Java 17, and there is no {where!r}. Install it (Debian: "
            f"apt install openjdk-17-jre-headless), or let JAVA_HOME name its folder."
        )
    return path


def find_program(name: str, artifact: str, flag: str) -> str:
    """Returns the path of what takes the jobs of an engine.

    Args:
      name: of the engine.
      artifact: of its job server, in Beam's own repository; empty for a program.
      flag: Beam's, that names another one.

    Raises:
      UsageError: it is not there.
    """
    # Here, since it takes long to load, and the command line asks for the engines.
    import importlib.metadata

    version = importlib.metadata.version("apache-beam")
    if artifact:
        what = f"Beam's job server {artifact} {version}"
        fetched = f"; Maven may have it as org.apache.beam:{artifact}:{version}"
        path = jar_path(artifact, version)
        program = find_jar(artifact, version)
    else:
        what, fetched = f"{name.capitalize()} {version}", ""
        path = _cache_folder() / "engines" / f"{name}-{version}-loopback"
        program = path if path.is_file() else None
    if program is None:
        raise UsageError(
            f"{what} must be at {str(path)!r}; there is no such file. In a checkout, "
            f"'scripts/cluster {name} up' brings it{fetched}. Or name another after "
            f"--: --{flag}=PATH."
        )
    return str(program)


def check_job_server(endpoint: str) -> None:
    """Refuses the address of a job server that nobody answers at.

    Beam would wait for it as long as for the job.

    Raises:
      UsageError: there is none.
    """
    host, _, port = endpoint.rpartition(":")
    try:
        address = host.strip("[]"), int(port)
        with socket.create_connection(address, timeout=_ASK_SECONDS):
            pass
        _check_speaks(endpoint)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"There must be a job server at {endpoint!r}; found none: {error}. Start "
            f"it, or leave out --job-endpoint: each job then starts its own."
        ) from error


def _check_speaks(endpoint: str) -> None:
    """Raises OSError where somebody else than a job server answers at an address."""
    # Here, since it takes long to load.
    import grpc

    with grpc.insecure_channel(endpoint) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_ASK_SECONDS)
        except grpc.FutureTimeoutError:
            raise OSError("what answers there is no gRPC server") from None


def check_shared(
    name: str, master: str, settings: JobSettings, beam_flags: Sequence[str]
) -> None:
    """Refuses what workers on other machines could not see, or could not start from.

    What starts a worker, and what it leaves, is a file too: it is in the work folder,
    or where that is in an object store in the folder of temporary files.

    Raises:
      TargetError: a path is of this machine alone.
      UsageError: nothing starts workers there.
    """
    apart = starts_elsewhere(beam_flags)
    endpoint = flag_given(beam_flags, "job_endpoint") or settings.job_endpoint or ""
    host = host_elsewhere(master) or host_elsewhere(endpoint)
    if not (apart or host):
        return
    who = f"The workers of {name}{f' at {host!r}' if host else ''}"
    if not settings.shared_output:
        folder = settings.images_root
        given = [
            ("source", settings.source),
            ("output", settings.output),
            ("folder of --images-root", paths.absolute(folder) if folder else ""),
        ]
        check_paths(who, given, starts="" if apart else START_THERE)
    if apart or not paths.is_remote(settings.output):
        return
    if not (settings.shared_output and os.environ.get("TMPDIR")):
        import tempfile

        raise UsageError(
            f"{who} must see the file that starts them, and it is in this machine's "
            f"{tempfile.gettempdir()!r}. {START_THERE} Or, with a disk that all "
            f"machines share, set TMPDIR to a folder that every machine sees under "
            f"this very path and say --shared-output."
        )


def check_paths(
    who: str, given: Iterable[tuple[str, str]], *, starts: str = ""
) -> None:
    """Refuses paths of this machine's disk, which workers elsewhere do not see.

    Args:
      who: does not see them, as the first words of the message.
      given: (what it is, path) of each; an empty path for none.
      starts: how workers can be started where they run; empty where they are so.

    Raises:
      TargetError: one is of this machine.
    """
    for what, path in given:
        if path and not paths.is_remote(path):
            raise TargetError(
                f"{who} {'' if starts else 'are elsewhere: they '}must see the {what}; "
                f"{path!r} is a path of this machine. Put it into an object store."
                f"{f' {starts}' if starts else ''} Or say --shared-output, if every "
                f"machine sees it under this very path."
            )


def not_started(name: str, place: WorkerPlace, said: str) -> UsageError | None:
    """Returns the error of an engine that cannot start workers; None for another.

    An address says nothing of where an engine runs: a port may be forwarded, and a
    container has a disk of its own.

    Args:
      name: of the engine.
      place: of the job.
      said: what the engine, or its job server, has said.
    """
    if not _NOT_STARTED.search(said):
        return None
    if place.starts_elsewhere:
        return UsageError(
            f"The machines of {name} must be able to run the file that starts workers; "
            f"the command of --environment_config is not there. Install beam-tfrecord "
            f"on them, in the engine's image for example, and give the whole path of "
            f"its beam-tfrecord-worker; nothing was committed."
        )
    return UsageError(
        f"The workers of {name} must see the file that starts them; "
        f"{place.worker!r} of this machine is not visible to the engine, so it runs on "
        f"another one, or in a container, whatever its address is. {START_THERE} Or, "
        f"with a disk that all machines share, set TMPDIR to a folder that every "
        f"machine sees under this very path and say --shared-output. Nothing was "
        f"committed."
    )


def check_pool(beam_flags: Sequence[str]) -> None:
    """Refuses a pool that could not call the engine back.

    Raises:
      UsageError: it is not on the network of the engine's own machine.
    """
    if flag_given(beam_flags, "environment_type") != "EXTERNAL":
        return
    pool = flag_given(beam_flags, "environment_config") or ""
    host, colon, _ = pool.rpartition(":")
    # Beam's flag also takes JSON.
    if not colon or host.startswith("{") or _is_loopback(host.strip("[]")):
        return
    raise UsageError(
        f"A pool must be on the network of the machine that the engine runs its tasks "
        f"on, as in --environment_config=localhost:50000: the engine gives it "
        f"addresses on localhost to call back, and workers at {host!r} would wait for "
        f"ever. Run Beam's pool beside each of the engine's machines, in the same pod "
        f"for example."
    )


def host_elsewhere(address: str) -> str:
    """Returns the host of a master or a server; empty where it is this machine."""
    if address in WITHIN_SERVER or re.fullmatch(r"local(\[.*\])?", address):
        return ""
    host = address.rpartition("//")[2].partition("/")[0]
    host = (
        host.partition("]")[0][1:] if host.startswith("[") else host.partition(":")[0]
    )
    is_here = host in ("", socket.gethostname(), socket.getfqdn())
    return "" if is_here or _is_loopback(host) else host


def _is_loopback(host: str) -> bool:
    """Whether a host is this machine for whoever says it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# The ways to say what a worker has installed.
_WORKER_FLAGS = (
    *("sdk_container_image", "setup_file", "extra_package", "extra_packages"),
    "files_to_stage",
)
# With it the program ends when the job is handed over.
_DETACHING = "no_wait_until_finish"
# The form that Beam requires; for others it would try to create a bucket.
_FOLDER = re.compile(r"gs://[a-z0-9][-_a-z0-9.]+[a-z0-9]/.*", re.DOTALL)
# URI parameters that grant no access.
_HARMLESS = frozenset(("anonymous", "endpoint_override", "region", "scheme"))
_CLIENT = "google.cloud.dataflow_v1beta3"


def is_detached(beam_flags: Sequence[str]) -> bool:
    """Whether nobody waits for the job."""
    return has_flag(beam_flags, _DETACHING)


def check_dataflow(settings: JobSettings, beam_flags: Sequence[str]) -> None:
    """Raises unless the job can be handed to Dataflow.

    Raises:
      UsageError: a flag of Beam's, or an extra of the installation, is missing.
      TargetError: the source or the output is not in a bucket of Google's.
      SpecError: a path brings keys, or a setting wants someone to wait for the job.
    """
    for name, path, text in (
        ("source", settings.source, "source"),
        ("output", settings.output, "output"),
        ("images_root", settings.images_root, "folder of --images-root"),
    ):
        if (path or name != "images_root") and not path.startswith("gs://"):
            raise TargetError(
                f"Dataflow's workers must see the {text}, as in gs://bucket/folder; "
                f"{path!r} is not in a bucket of Google's. Copy it there first, or "
                f"run without --runner."
            )
    _check_keys()
    _check_flags(beam_flags)
    if is_detached(beam_flags) and settings.split_lock:
        raise SpecError(
            "split_lock is written after the job, and with --no_wait_until_finish "
            "nobody waits for that. Leave either out."
        )
    _check_installed()


def _check_installed() -> None:
    import importlib.util

    try:
        spec = importlib.util.find_spec(_CLIENT)
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise UsageError(
            "Dataflow needs Beam's parts for Google Cloud, which are not installed: "
            "pip install 'beam-tfrecord[dataflow]'."
        )


def _check_keys() -> None:
    """Refuses keys in paths: they would be in the bucket, within the staged job."""
    for place, names in paths.parameters_given().items():
        if wrong := sorted(names - _HARMLESS):
            raise SpecError(
                f"On Dataflow access is by the workers' service account, and no key is "
                f"sent there; {', '.join(wrong)} was given with {place!r}. Take it "
                f"off, and let the account read and write the place."
            )


def _check_flags(flags: Sequence[str]) -> None:
    region = flag_given(flags, "region") or os.environ.get("CLOUDSDK_COMPUTE_REGION")
    for name, value, example in (
        ("project", flag_given(flags, "project"), "my-project"),
        ("region", region, "europe-west1"),
    ):
        if not value:
            raise UsageError(
                f"Dataflow needs --{name} after --, as in -- --{name}={example}; it "
                f"was not given."
            )
    if has_flag(flags, "template_location"):
        raise UsageError(
            "Templates are gone: leave out --template_location, and let a scheduler "
            "run this program; with --no_wait_until_finish it ends once the job is "
            "submitted."
        )
    if not any(has_flag(flags, name) for name in _WORKER_FLAGS):
        raise UsageError(
            f"Dataflow's workers must have beam-tfrecord {__version__}; say after -- "
            f"where from: an image, --sdk_container_image=IMAGE (examples/dataflow has "
            f"its Dockerfile), or a package, --extra_package=FILE (pip wheel makes it)."
        )
    given = {
        name: flag_given(flags, name) for name in ("temp_location", "staging_location")
    }
    if not any(given.values()):
        raise UsageError(
            "Dataflow needs a folder in a bucket for what it stages, after --, as in "
            "-- --temp_location=gs://bucket/tmp; none was given."
        )
    for name, value in given.items():
        if value and not _FOLDER.fullmatch(value):
            raise UsageError(
                f"--{name} must be a folder in a bucket, as in gs://bucket/tmp; found "
                f"{value!r}."
            )

"""Check a job before it runs: Beam's flags, who answers, what workers see.

Without these checks Beam would fail only after minutes, or search Google's services for
what is missing. Beam's flags are read without importing Beam, which is slow to load.
"""

import ipaddress
import json
import os
import re
import socket
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from beam_pipeline.version import FOR_ROWS, __version__, deciding_versions
from transforms.errors import SpecError, TargetError, UsageError
from transforms.storage import paths
from transforms.work.worker_check import VersionRules

if TYPE_CHECKING:
    # Loads pydantic, which takes longer than the help of a command.
    from beam_pipeline.settings.spec import Spec

FLINK_VERSION = "1.20"
# Masters of Flink that are a cluster within the job server.
WITHIN_SERVER = ("[local]", "[auto]")
# Beam's flag for a job that is only handed over.
NO_WAIT = "no_wait_until_finish"
# How long a job server or a master may take to answer.
_ASK_SECONDS = 10.0
START_THERE = (
    "Let workers be started where the engine runs, by Beam's flags (after -- on the "
    "command line): by a pool beside it, with --environment_type=EXTERNAL "
    "--environment_config=localhost:50000, or from its image, with "
    '--environment_type=PROCESS --environment_config={"command":'
    '"/opt/venv/bin/beam-tfrecord-worker"}.'
)
"""What to do where the engine's machines do not see the file that starts workers."""
_OTHER_STARTS = (
    f"{START_THERE} Or, with a disk that all machines share, set TMPDIR to a folder "
    f"that every machine sees under this very path and say --shared-output."
)
_ENVIRONMENT = ("environment_type", "environment_config", "environment_options")
# Java's words for a file that is not there or that cannot be run, and Prism's.
_NOT_STARTED = re.compile(r"\berror=(2|13), |process failed to start")


def check_words(flags: Sequence[str]) -> None:
    """Raises SpecError for a word that is neither a flag nor the value of one.

    Flags in kebab case are refused, for Beam ignores them without an error.
    """
    words = [
        flag
        for before, flag in zip(["", *flags], flags, strict=False)
        if not flag.startswith("-")
        # Not the value of the flag before.
        if not before.startswith("--") or "=" in before
    ]
    kebab = [
        flag
        for flag in flags
        if flag.startswith("--") and "-" in flag.partition("=")[0][2:]
    ]
    for wrong in words + kebab:
        raise SpecError(
            f"What follows -- must be flags of Beam in snake case, as --job_name=NAME "
            f"is; found {wrong!r}. Give SOURCE, OUTPUT and the program's own flags "
            f"before --."
        )


def flag_given(flags: Sequence[str], name: str) -> str | None:
    """Returns the last value of one of Beam's flags; None where it is not given."""
    value = None
    for at, flag in enumerate(flags):
        if flag.startswith(f"--{name}="):
            value = flag.partition("=")[2]
        elif flag == f"--{name}" and at + 1 < len(flags):
            value = flags[at + 1]
    return value


def has_flag(flags: Sequence[str], *names: str) -> bool:
    """Whether one of these flags of Beam is there, with a value or without one."""
    return not {flag.partition("=")[0][2:] for flag in flags}.isdisjoint(names)


def environment_given(flags: Sequence[str]) -> bool:
    """Whether Beam's own flags say how workers are started."""
    return has_flag(flags, *_ENVIRONMENT)


def starts_elsewhere(flags: Sequence[str]) -> bool:
    """Whether workers are started without this program: they may share no disk."""
    # LOOPBACK: as threads of this process.
    is_here = flag_given(flags, "environment_type") == "LOOPBACK"
    return environment_given(flags) and not is_here


def refuse_starts(flags: Sequence[str], who: str) -> None:
    """Raises SpecError for flags of engines with a job server, which this is not.

    Args:
      flags: Beam's.
      who: runs the job, as in "a local run".
    """
    for name in ("job_endpoint", "flink_master", "spark_master_url"):
        if flag_given(flags, name):
            raise SpecError(
                f"--{name} is for Flink, Spark and Prism, and this is {who}. Leave it "
                f"out, or choose the engine with --runner."
            )


def version_rules(*, images: bool, compressed: bool) -> VersionRules:
    """Returns the versions that decide bytes of a job, which are those of here.

    Machines of others have another zlib, say, than this one; a job of plain rows need
    not be refused for that.

    Args:
      images: whether it has images, whose codecs decide bytes.
      compressed: whether its shards are compressed.
    """
    versions = deciding_versions()
    deciding = FOR_ROWS | ({"zlib"} if compressed else set())
    free = frozenset() if images else frozenset(versions.keys() - deciding)
    return VersionRules(versions, deciding_versions, free)


def check_shared(
    name: str, master: str, settings: "Spec", flags: Sequence[str]
) -> None:
    """Refuses what workers on other machines could not see, or could not start from.

    What starts a worker, and what it leaves, is a file too: it is in the work folder,
    or where that is in an object store in the folder of temporary files.

    Raises:
      TargetError: a path is of this machine alone.
      UsageError: nothing starts workers there.
    """
    apart = starts_elsewhere(flags)
    endpoint = flag_given(flags, "job_endpoint") or ""
    host = host_elsewhere(master) or host_elsewhere(endpoint)
    if not (apart or host) or settings.shared_output:
        return
    who = f"The workers of {name}{f' at {host!r}' if host else ''}"
    check_paths(who, _places(settings), starts="" if apart else START_THERE)
    if not apart:
        raise UsageError(
            f"{who} must see the file that starts workers, and it is in this machine's "
            f"folder of temporary files. {_OTHER_STARTS}"
        )


def _places(settings: "Spec") -> list[tuple[str, str]]:
    """Returns what workers read and write: (what it is, path) of each."""
    given = [("source", settings.source), ("output", settings.output)]
    if folder := settings.images_root:
        given.append(("folder of --images-root", paths.absolute(folder)))
    return given


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
                f"{who} must see the {what}; {path!r} is a path of this machine. Put "
                f"it into an object store.{starts and f' {starts}'} Or say "
                f"--shared-output, if every machine sees it under this very path."
            )


def not_started(name: str, worker: str, said: str) -> UsageError | None:
    """Returns the error of an engine that cannot start workers; None for another.

    An address says nothing of where an engine runs: a port may be forwarded, and a
    container has a disk of its own.

    Args:
      name: of the engine.
      worker: path of the file that starts them; empty where Beam's flags say another.
      said: what the engine, or its job server, has said.
    """
    if not _NOT_STARTED.search(said):
        return None
    return UsageError(
        f"The machines of {name} must see the file that starts workers; "
        f"{worker or 'the command of --environment_config'!r} is not there, so they "
        f"are others than this one, or containers, whatever their address is. "
        f"{_OTHER_STARTS} Nothing was committed."
    )


def host_elsewhere(address: str) -> str:
    """Returns the host of a master or a server; empty where it is this machine."""
    if address in WITHIN_SERVER or re.fullmatch(r"local(\[.*\])?", address):
        return ""
    place = address.rpartition("//")[2].partition("/")[0]
    host = place[: place.find("]") + 1] or place.partition(":")[0]
    names = ("", socket.gethostname(), socket.getfqdn())
    return "" if host in names or _is_loopback(host) else host.strip("[]")


def _is_loopback(host: str) -> bool:
    """Whether a host is this machine for whoever says it."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


# The ways to say what a worker has installed.
_WORKER_FLAGS = (
    *("sdk_container_image", "setup_file", "extra_package", "extra_packages"),
    "files_to_stage",
)
# The form that Beam requires; for others it would try to create a bucket.
_FOLDER = re.compile(r"gs://[a-z0-9][-_a-z0-9.]+[a-z0-9]/.*", re.DOTALL)
# URI parameters that grant no access.
_HARMLESS = frozenset(("anonymous", "endpoint_override", "region", "scheme"))


def check_dataflow(settings: "Spec", flags: Sequence[str]) -> None:
    """Raises unless a job can be handed to Dataflow.

    Beam would search Google's services for what is missing, and make buckets.

    Raises:
      UsageError: a flag of Beam's is missing.
      TargetError: the source or the output is not in a bucket of Google's.
      SpecError: a path brings keys, or nobody waits who would write the lock.
    """
    for what, path in _places(settings):
        if not path.startswith("gs://"):
            raise TargetError(
                f"Dataflow's workers must see the {what}, as in gs://bucket/folder; "
                f"{path!r} is not in a bucket of Google's. Copy it there first, or "
                f"run without --runner."
            )
    # They would be in the bucket, within the staged job.
    for address, names in paths.parameters_given().items():
        if wrong := sorted(names - _HARMLESS):
            raise SpecError(
                f"On Dataflow access is by the workers' service account, and no key is "
                f"sent there; {', '.join(wrong)} was given with {address!r}. Take it "
                f"off, and let the account read and write the place."
            )
    if has_flag(flags, NO_WAIT) and settings.split_lock:
        raise SpecError(
            f"split_lock is written after the job, and with --{NO_WAIT} nobody waits "
            f"for that. Leave either out."
        )
    temporary = flag_given(flags, "temp_location")
    staging = flag_given(flags, "staging_location")
    region = flag_given(flags, "region") or os.environ.get("CLOUDSDK_COMPUTE_REGION")
    for name, value, example in (
        ("project", flag_given(flags, "project"), "my-project"),
        ("region", region, "europe-west1"),
        ("temp_location", temporary or staging, "gs://bucket/tmp"),
    ):
        if not value:
            raise UsageError(
                f"Dataflow needs --{name} after --, as in -- --{name}={example}; it "
                f"was not given."
            )
    for value in filter(None, (temporary, staging)):
        if not _FOLDER.fullmatch(value):
            raise UsageError(
                f"What is staged must be in a folder of a bucket, as in --temp_location"
                f"=gs://bucket/tmp; found {value!r}."
            )
    if has_flag(flags, "template_location"):
        raise UsageError(
            "No templates are made: leave out --template_location, and let a scheduler "
            "run this program."
        )
    if not has_flag(flags, *_WORKER_FLAGS):
        raise UsageError(
            f"Dataflow's workers must have beam-tfrecord {__version__}; say after -- "
            f"where from: an image, --sdk_container_image=IMAGE (examples/dataflow has "
            f"its Dockerfile), or a package, --extra_package=FILE (pip wheel makes it)."
        )


def check_answers(who: str, addresses: str) -> None:
    """Refuses a server that takes no connections, for which an engine would wait long.

    Args:
      who: is to answer, as in "a Spark".
      addresses: each HOST:PORT; behind commas those that take over from the first.

    Raises:
      UsageError: none answers.
    """
    why = ""
    for address in addresses.split(","):
        host, _, port = address.rpartition("//")[2].rpartition(":")
        try:
            given = host.strip("[]"), int(port)
            return socket.create_connection(given, _ASK_SECONDS).close()
        except (OSError, OverflowError, ValueError) as error:
            why = str(error)
    raise _no_answer(who, addresses, why)


def flink_size(master: str) -> tuple[int, int]:
    """Returns the slots of a running Flink, and those of each of its machines.

    Without them Beam's job server would run one task at a time.

    Raises:
      UsageError: there is none, or not of the job server's version.
    """
    try:
        seen = ask_flink(master, "overview")
        version, slots = str(seen["flink-version"]), int(seen["slots-total"])
        machines = int(seen["taskmanagers"])
    except (OSError, ValueError, KeyError) as error:
        raise _no_answer("a Flink", master, str(error)) from error
    if not version.startswith(f"{FLINK_VERSION}.") or not slots:
        raise UsageError(
            f"The Flink at {master!r} must be of {FLINK_VERSION}, as the job server "
            f"is, and have task slots (bin/taskmanager.sh start); it is of {version}, "
            f"and has {machines} task managers with {slots} slots."
        )
    return slots, -(-slots // max(machines, 1))


def ask_flink(master: str, path: str, method: str = "GET") -> dict[str, Any]:
    """Returns what the REST interface of a Flink answers.

    Args:
      master: as `HOST:PORT`, or with `http://`.
      path: of what is asked for.
      method: of HTTP.

    Raises:
      OSError, ValueError: it does not answer.
    """
    # Here, since it takes long to load, and the command line asks for the engines.
    import http.client
    import urllib.request

    url = master if "//" in master else f"http://{master}"
    asked = urllib.request.Request(f"{url}/{path}", method=method)
    try:
        with urllib.request.urlopen(asked, timeout=_ASK_SECONDS) as answer:
            content: dict[str, Any] = json.loads(answer.read() or "{}")
    except http.client.HTTPException as error:
        # An address without a port's number, or an answer that is not of HTTP.
        raise ValueError(str(error)) from error
    return content


def _no_answer(who: str, address: str, why: str) -> UsageError:
    return UsageError(
        f"There must be {who} at {address!r}, as in HOST:PORT; none answers: {why}. "
        f"Start it (in a checkout, scripts/cluster does), or name another after --."
    )

"""Check a job before it runs: Beam's flags, who answers, what workers see.

Without these checks Beam would fail only after minutes, or search Google's services for
what is missing. Beam's flags are read without importing Beam, which is slow to load.
"""

import json
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
_ENVIRONMENT = ("environment_type", "environment_config", "environment_options")


def check_words(flags: Sequence[str]) -> None:
    """Raises SpecError for a word that is neither a flag nor the value of one.

    Flags in kebab case are refused, for Beam ignores them without an error.
    """
    for before, flag in zip(["", *flags], flags, strict=False):
        is_value = before.startswith("--") and "=" not in before
        is_kebab = flag.startswith("--") and "-" in flag.partition("=")[0][2:]
        if is_kebab or not (flag.startswith("-") or is_value):
            raise SpecError(
                f"What follows -- must be flags of Beam in snake case, as "
                f"--job_name=NAME is; found {flag!r}. Give SOURCE, OUTPUT and the "
                f"program's own flags before --."
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


def environment_given(flags: Sequence[str]) -> bool:
    """Whether Beam's own flags say how workers are started."""
    return not {flag.partition("=")[0][2:] for flag in flags}.isdisjoint(_ENVIRONMENT)


def starts_elsewhere(flags: Sequence[str]) -> bool:
    """Whether workers are started without this program: they may share no disk."""
    # LOOPBACK: as threads of this process.
    is_here = flag_given(flags, "environment_type") == "LOOPBACK"
    return environment_given(flags) and not is_here


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

    What starts a worker is a file too, in the folder of temporary files where the
    output is in an object store.

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
            f"folder of temporary files. {START_THERE} Or, with a disk that all "
            f"machines share, set TMPDIR to a folder that every machine sees under "
            f"this very path and say --shared-output."
        )


def _places(settings: "Spec") -> list[tuple[str, str]]:
    """Returns what workers read and write: (what it is, path) of each."""
    return [
        *(("source", settings.source), ("output", settings.output)),
        ("folder of --images-root", settings.images_folder),
    ]


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


def host_elsewhere(address: str) -> str:
    """Returns the host of a master or a server; empty where it is this machine."""
    if address in WITHIN_SERVER or re.fullmatch(r"local(\[.*\])?", address):
        return ""
    place = address.rpartition("//")[2].partition("/")[0]
    host = (place[: place.find("]") + 1] or place.partition(":")[0]).strip("[]")
    names = ("", "localhost", "::1", socket.gethostname(), socket.getfqdn())
    return "" if host in names or host.startswith("127.") else host


# What Dataflow needs: one of these flags, in this form, as in this example. For folders
# of another form Beam would try to create a bucket.
_NEEDED = (
    (("project",), r".+", "my-project"),
    (("region",), r".+", "europe-west1"),
    (
        ("temp_location", "staging_location"),
        r"gs://[a-z0-9][-_a-z0-9.]+[a-z0-9]/.*",
        "gs://bucket/tmp",
    ),
    (
        (
            *("sdk_container_image", "extra_package", "extra_packages"),
            *("setup_file", "files_to_stage"),
        ),
        r".+",
        f"IMAGE, which has beam-tfrecord {__version__} (see examples/dataflow)",
    ),
)
# URI parameters that grant no access.
_HARMLESS = frozenset(("anonymous", "endpoint_override", "region", "scheme"))


def check_dataflow(settings: "Spec", flags: Sequence[str]) -> None:
    """Raises unless a job can be handed to Dataflow.

    Raises:
      UsageError: a flag of Beam's is missing; Beam would search Google's services.
      TargetError: the source or the output is not in a bucket of Google's.
      SpecError: a path brings keys.
    """
    for what, path in _places(settings):
        if path and not path.startswith("gs://"):
            raise TargetError(
                f"Dataflow's workers must see the {what}, as in gs://bucket/folder; "
                f"{path!r} is not in a bucket of Google's. Copy it there first, or "
                f"run without --runner."
            )
    # They would be in the bucket, within the staged job.
    for address, given in paths.parameters_given().items():
        if wrong := sorted(given - _HARMLESS):
            raise SpecError(
                f"On Dataflow access is by the workers' service account, and no key is "
                f"sent there; {', '.join(wrong)} was given with {address!r}. Take it "
                f"off, and let the account read and write the place."
            )
    for names, form, example in _NEEDED:
        values = [flag_given(flags, name) or "" for name in names]
        if not any(re.fullmatch(form, value, re.DOTALL) for value in values):
            raise UsageError(
                f"Dataflow needs --{' or --'.join(names)} after --, as in -- "
                f"--{names[0]}={example}; found {''.join(values) or 'none'!r}."
            )


def check_answers(who: str, addresses: str) -> None:
    """Refuses a server that takes no connections, for which an engine would wait long.

    Args:
      who: is to answer, as in "a Spark".
      addresses: each HOST:PORT; behind commas those that take over from the first.

    Raises:
      UsageError: none answers.
    """
    whys = [why_silent(address) for address in addresses.split(",")]
    if all(whys):
        raise _no_answer(who, addresses, whys[-1])


def why_silent(address: str) -> str:
    """Returns why nobody takes connections at HOST:PORT; empty where somebody does."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ASK_SECONDS).close()
    except (OSError, OverflowError, ValueError) as error:
        return str(error)
    return ""


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
    except Exception as error:
        raise _no_answer("a Flink", master, str(error)) from error
    if not version.startswith(f"{FLINK_VERSION}.") or not slots:
        raise UsageError(
            f"The Flink at {master!r} must be of {FLINK_VERSION}, as the job server "
            f"is, and have task slots (bin/taskmanager.sh start); it is of {version}, "
            f"and has {slots} slots."
        )
    return slots, -(-slots // max(machines, 1))


def ask_flink(master: str, path: str, method: str = "GET") -> dict[str, Any]:
    """Returns what the REST interface of a Flink, at HOST:PORT, answers.

    What it raises is not to be foreseen: another program may listen there.
    """
    # Here, since it takes long to load, and the command line asks for the engines.
    import urllib.request

    url = master if "//" in master else f"http://{master}"
    asked = urllib.request.Request(f"{url}/{path}", method=method)
    with urllib.request.urlopen(asked, timeout=_ASK_SECONDS) as answer:
        content: dict[str, Any] = json.loads(answer.read() or "{}")
    return content


def _no_answer(who: str, address: str, why: str) -> UsageError:
    """Returns the error about an address at which no job server or Flink answers."""
    return UsageError(
        f"There must be {who} at {address!r}, as in HOST:PORT; none answers: {why}. "
        f"Start it (in a checkout, scripts/cluster does), or name another after --."
    )

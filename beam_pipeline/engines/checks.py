"""Check a job before it runs: Beam's flags, who answers, what workers see.

Without these checks Beam would fail only after minutes, or search Google's services for
what is missing. Beam's flags are read without importing Beam, which is slow to load.
"""

import dataclasses
import json
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transforms.errors import SpecError, TargetError, UsageError
from transforms.storage import paths

FLINK_VERSION = "1.20"
# Masters of Flink that are a cluster within the job server, and a server of this
# process.
WITHIN_SERVER = ("[local]", "[auto]", "embed")
MASTERS = {"FlinkRunner": "flink_master", "SparkRunner": "spark_master_url"}
"""Beam's flag that names a master, by its name of the runner."""
# How long a job server or a master may take to answer.
_ASK_SECONDS = 10.0
_START_THERE = (
    "Let workers be started where the engine runs, by Beam's flags (after -- on the "
    "command line): by a pool beside it, with --environment_type=EXTERNAL "
    "--environment_config=localhost:50000, or from its image, with "
    '--environment_type=PROCESS --environment_config={"command":'
    '"/opt/venv/bin/beam-tfrecord-worker"}. '
)
_ENVIRONMENT = ("environment_type", "environment_config", "environment_options")


def values_of(words: Sequence[str]) -> dict[str, str]:
    """Checks the form of Beam's flags; returns name -> last value.

    Flags in kebab case are refused, for Beam ignores them without an error.

    Example:
      >>> values_of(["--runner=a", "--runner", "b"])
      {'runner': 'b'}

    Raises:
      SpecError: a word is neither a flag nor the value of one.
    """
    values: dict[str, str] = {}
    before = ""
    for word in words:
        flag, sign, value = word.partition("=")
        name = flag[2:]
        if before and not word.startswith("-"):
            values[before], before = word, ""
        elif word.startswith("-") and "-" not in name:
            values[name], before = value, "" if sign else name
        else:
            raise SpecError(
                f"What follows -- must be flags of Beam in snake case, as "
                f"--job_name=NAME is; found {word!r}. Give SOURCE, OUTPUT and the "
                f"program's own flags before --."
            )
    return values


def environment_given(flags: Mapping[str, Any]) -> bool:
    """Whether Beam's flags say how workers are started; read before a job runs."""
    return any(flags.get(name) for name in _ENVIRONMENT)


@dataclasses.dataclass(frozen=True, slots=True)
class EngineWorkers:
    """Workers of an engine, to check what they see: they may share no disk with us.

    Attributes:
      who: they are, as in "The workers of FlinkRunner at 'far.example'".
      started: whether they are started where the engine runs.
    """

    who: str
    started: bool = False


def workers_of(
    runner: str, flags: Mapping[str, Any], *, starts_here: bool
) -> EngineWorkers | None:
    """Returns the workers whose view of paths is to be checked; None for those here.

    Args:
      runner: Beam's name of it.
      flags: of Beam.
      starts_here: whether workers are of this machine where no flag says how they are
        started.
    """
    if "Dataflow" in runner:
        return EngineWorkers(f"The workers of {runner}", started=True)
    endpoint = str(flags.get("job_endpoint") or "")
    host = host_elsewhere(master_of(runner, flags)) or host_elsewhere(endpoint)
    given = environment_given(flags)
    # LOOPBACK: as threads of this process.
    here = flags.get("environment_type") == "LOOPBACK" if given else starts_here
    if not host and here:
        return None
    at = f" at {host!r}" if host else ""
    return EngineWorkers(f"The workers of {runner}{at}", started=given and not here)


def master_of(runner: str, flags: Mapping[str, Any]) -> str:
    """Reads the master of a runner from Beam's flags; returns "" for none."""
    return str(flags.get(MASTERS.get(runner, "")) or "")


def check_seen(
    workers: EngineWorkers | None, places: Iterable[tuple[str, str]], *, shared: bool
) -> None:
    """Refuses what is on this machine's disk where the workers may be on others.

    Args:
      workers: that are to read or write it; None for those of this machine.
      places: (what it is, path) of each; an empty path for none.
      shared: whether the user says that all machines see it.

    Raises:
      TargetError: the workers do not see one of them.
    """
    if workers is None or shared:
        return
    for what, path in places:
        if path and not paths.is_remote(path):
            raise TargetError(
                f"{workers.who} must see the {what}; {path!r} is a path of this "
                f"machine. {'' if workers.started else _START_THERE}Put what they read "
                f"and write into an object store. Or say --shared-output, if every "
                f"machine sees it, and TMPDIR, under this very path."
            )


def host_elsewhere(address: str) -> str:
    """Returns the host of a master or a server; empty where it is this machine."""
    if address in WITHIN_SERVER or re.fullmatch(r"local(\[.*\])?", address):
        return ""
    place = address.rpartition("//")[2].partition("/")[0]
    host = (place[: place.find("]") + 1] or place.partition(":")[0]).strip("[]")
    names = ("", "localhost", "::1", socket.gethostname(), socket.getfqdn())
    return "" if host in names or host.startswith("127.") else host


# What Dataflow needs: one of these flags, in this form. For folders of another form
# Beam would try to create a bucket.
_NEEDED = {
    ("project",): r".+",
    ("region",): r".+",
    ("temp_location", "staging_location"): r"gs://[a-z0-9][-_a-z0-9.]+[a-z0-9]/.*",
    (
        *("sdk_container_image", "extra_package", "extra_packages"),
        *("setup_file", "files_to_stage"),
    ): r".+",
}
# URI parameters that grant no access.
_HARMLESS = frozenset(("anonymous", "endpoint_override", "region", "scheme"))


def check_dataflow(flags: Mapping[str, str]) -> None:
    """Raises unless a job can be handed to Dataflow.

    Raises:
      UsageError: a flag of Beam's is missing; Beam would search Google's services.
      SpecError: a path brings keys.
    """
    # They would be in the bucket, within the staged job.
    for address, given in paths.parameters_given().items():
        if wrong := sorted(given - _HARMLESS):
            raise SpecError(
                f"On Dataflow access is by the workers' service account, and no key is "
                f"sent there; {', '.join(wrong)} was given with {address!r}. Take it "
                f"off, and let the account read and write the place."
            )
    for names, form in _NEEDED.items():
        values = [flags.get(name, "") for name in names]
        if not any(re.fullmatch(form, value, re.DOTALL) for value in values):
            raise UsageError(
                f"Dataflow needs --{' or --'.join(names)}; found "
                f"{''.join(values) or 'none'!r}. Give its flags after --, as in -- "
                f"--project=my-project --region=europe-west1 "
                f"--temp_location=gs://bucket/tmp --sdk_container_image=IMAGE, which "
                f"has beam-tfrecord (see examples/dataflow)."
            )


def check_answers(who: str, addresses: str) -> None:
    """Refuses a server that takes no connections, for which an engine would wait long.

    Args:
      who: is to answer, as in "Spark master".
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
    """Asks a running Flink for its slots, and those of each of its machines.

    Without them Beam's job server would run one task at a time.

    Raises:
      UsageError: there is none, or not of the job server's version.
    """
    try:
        seen = ask_flink(master, "overview")
        version, slots = str(seen["flink-version"]), int(seen["slots-total"])
        if version.startswith(f"{FLINK_VERSION}.") and slots:
            return slots, -(-slots // max(int(seen["taskmanagers"]), 1))
        why = f"it is of version {version}, and has {slots} slots"
    except Exception as error:  # noqa: BLE001 - another program may listen there
        why = str(error)
    raise _no_answer(f"Flink {FLINK_VERSION} with task slots", master, why)


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
    """Returns the error about an address at which what is needed does not answer."""
    return UsageError(
        f"No {who} answers at {address!r}, as in HOST:PORT: {why}. Start one (in a "
        f"checkout, scripts/cluster does), or name another after --."
    )

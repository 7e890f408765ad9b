"""Settings that this version took away, each with what to do instead.

An entry stays for one release, then goes: the name is unknown from then on. The
section "Removed" of CHANGELOG.md says the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from transforms.errors import SpecError


class Removed(NamedTuple):
    """A setting that is gone.

    Attributes:
      instead: a sentence that says what to do instead.
      default: what manifests say of a job that did not set it.
    """

    instead: str
    default: Any


REMOVED: Mapping[str, Removed] = {
    "report": Removed(
        "Run `beam-tfrecord report OUTPUT` after it, which writes that page.", False
    ),
    "allow_empty": Removed(
        "Give --min-records 0, which allows an empty dataset.", False
    ),
    "encode": Removed(
        "Give --image-format png, or leave it out for raw pixels.", "raw"
    ),
    "resize_filter": Removed(
        "Name the filter behind the size, as in --resize shorter:224:lanczos.",
        "hamming",
    ),
    "enlarge": Removed(
        "Say it behind the size, as in --resize shorter:224:enlarge.", False
    ),
    "verify": Removed(
        "Leave it out: finished shards of up to 64 MiB are read again before the "
        "commit, and `beam-tfrecord verify` reads larger ones after it.",
        None,
    ),
    "flink_master": Removed(
        "Give Beam's flag, after -- on the command line: --flink_master=HOST:PORT.",
        None,
    ),
    "spark_master": Removed(
        "Give Beam's flag, after -- on the command line: "
        "--spark_master_url=spark://HOST:PORT.",
        None,
    ),
    "job_endpoint": Removed(
        "Give Beam's flag, after -- on the command line: --job_endpoint=HOST:PORT.",
        None,
    ),
    "keep_work": Removed(
        "Write each day as a part of the dataset, with --part NAME: a night then reads "
        "its own day alone.",
        False,
    ),
    "vocabulary_lock": Removed(
        "Give the lock to --vocabulary, which reads it; names that it lacks are "
        "rejected. With --part or --like, --allow new-classes appends them.",
        None,
    ),
    "only_rejected": Removed(
        "Convert the corrected source again. `rejects` lists what to correct; after a "
        "failed run only blocks that have changed are read again.",
        None,
    ),
    "layout": Removed(
        "Read the records with NumPy and give the array to `convert` of Python: "
        "records = np.fromfile(path, dtype, offset=header_bytes).",
        None,
    ),
    "max_image_seconds": Removed(
        "Leave it out: an image may take 120 seconds of processor time. Convert slower "
        "ones to JPEG or PNG first.",
        120.0,
    ),
    "tfds_dir": Removed(
        "Give the output ROOT/NAME/1.0.0, which tfds.load(NAME, data_dir=ROOT) finds.",
        None,
    ),
    "segments": Removed(
        "Leave it out: rows of tables of up to 8 MB wait in memory until they are "
        "written, others in files.",
        "auto",
    ),
    "worker_pool": Removed(
        "Give Beam's flags, after -- on the command line: --environment_type=EXTERNAL "
        "--environment_config=HOST:PORT.",
        None,
    ),
    "worker_command": Removed(
        "Give Beam's flags, after -- on the command line: --environment_type=PROCESS "
        '--environment_config={"command":"PATH"}.',
        None,
    ),
    "worker_env": Removed(
        "Give Beam's flags, after -- on the command line: --environment_type=PROCESS "
        '--environment_config={"command":"PATH","env":{"NAME":"VALUE"}}.',
        {},
    ),
    "worker_timeout": Removed(
        "Leave it out: silent workers are reported, and end nothing. Ctrl-C does.", 300
    ),
}
# By setting: values that are gone, with a sentence for each.
REMOVED_VALUES: Mapping[str, Mapping[str, str]] = {
    "index": {
        "auto": "Leave it out.",
        "text": "Leave it out; `beam-tfrecord index DIR --text` adds that index.",
        "none": "Give --no-index, or false.",
    },
    "catalogue": {
        "auto": "Leave it out.",
        "scalars": "Give --catalogue, or true.",
        "full": "Give --catalogue, or true; it has no columns of texts.",
        "none": "Give --no-catalogue, or false.",
    },
    "compression": {
        "zlib": "zlib streams are read, not written. Take gzip, which is the same "
        "deflate with another frame."
    },
}
# What manifests say of jobs that did not set such a setting.
_OLD_DEFAULTS = {"index": "auto", "catalogue": "auto"}


def _instead(name: str, value: Any) -> str:
    """Returns what to do instead of a setting or value that is gone; else nothing."""
    if name in REMOVED:
        return REMOVED[name].instead
    return REMOVED_VALUES.get(name, {}).get(value, "") if isinstance(value, str) else ""


def check_still_there(settings: Mapping[str, Any]) -> None:
    """Refuses settings and values that are gone.

    Raises:
      SpecError: it says what to do instead.
    """
    for name, value in settings.items():
        if instead := _instead(name, value):
            shown = f"{name}={value}" if name in REMOVED_VALUES else repr(name)
            raise SpecError(f"{shown} is gone. {instead}")


def removed_flag(arguments: Sequence[str]) -> str:
    """Returns the error for the first argument that is gone; empty for none.

    It looks before click does, which would suggest another option for such a flag, and
    take its value for an argument.
    """
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if argument == "--":
            break
        flag, has_value, value = argument.partition("=")
        name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
        value = value if has_value else following
        if flag.startswith("--") and (instead := _instead(name, value)):
            shown = f"{flag} {value}" if name in REMOVED_VALUES else flag
            return f"{shown} is gone. {instead}"
    return ""


def without_removed_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an older manifest's settings, but for those that are gone and unset."""
    return {
        name: value
        for name, value in settings.items()
        if (name not in REMOVED or value != REMOVED[name].default)
        and value != _OLD_DEFAULTS.get(name)
    }

"""Settings that this version took away, each with what to do instead.

An entry stays for one release, then goes: the name is unknown from then on. The
section "Removed" of CHANGELOG.md says the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from transforms.errors import SpecError

_ENGINE_FLAGS = {
    "flink_master": "--flink_master=HOST:PORT",
    "spark_master": "--spark_master_url=spark://HOST:PORT",
    "job_endpoint": "--job_endpoint=HOST:PORT",
    "worker_pool": "--environment_type=EXTERNAL --environment_config=HOST:PORT",
    "worker_command": "--environment_type=PROCESS "
    '--environment_config={"command":"PATH"}',
    "worker_env": "--environment_type=PROCESS "
    '--environment_config={"command":"PATH","env":{"NAME":"VALUE"}}',
}
REMOVED: Mapping[str, str] = {
    "report": "Run `beam-tfrecord report OUTPUT` after it, which writes that page.",
    "allow_empty": "Give --min-records 0, which allows an empty dataset.",
    "encode": "Give --image-format png, or leave it out for raw pixels.",
    "resize_filter": "Name the filter behind the size: --resize shorter:224:lanczos.",
    "enlarge": "Say it behind the size, as in --resize shorter:224:enlarge.",
    "verify": "Leave it out: finished shards of up to 64 MiB are read again before "
    "the commit, and `beam-tfrecord verify` reads larger ones after it.",
    "keep_work": "Write each day as a part of the dataset, with --part NAME: a night "
    "then reads its own day alone.",
    "vocabulary_lock": "Give the lock to --vocabulary, which reads it; names that it "
    "lacks are rejected. With --part or --like, --allow new-classes appends them.",
    "only_rejected": "Convert the corrected source again. `rejects` lists what to "
    "correct; after a failed run only blocks that have changed are read again.",
    "layout": "Read the records with NumPy and give the array to `convert` of Python: "
    "records = np.fromfile(path, dtype, offset=header_bytes).",
    "max_image_seconds": "Leave it out: an image may take 120 seconds of processor "
    "time. Convert slower ones to JPEG or PNG first.",
    "tfds_dir": "Give the output ROOT/NAME/1.0.0, which tfds.load(NAME, data_dir=ROOT) "
    "finds.",
    "segments": "Leave it out: rows of tables of up to 8 MB wait in memory until they "
    "are written, others in files.",
    "worker_timeout": "Leave it out: silent workers are reported, and end nothing. "
    "Ctrl-C does.",
    **{
        name: f"Give Beam's flags, after -- on the command line: {flags}."
        for name, flags in _ENGINE_FLAGS.items()
    },
}
"""Settings that are gone, with a sentence that says what to do instead."""
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
    "unknown_label": {
        "append": "Write parts with --part, or give --like DATASET: --allow "
        "new-classes appends new names."
    },
    "format": {
        "fixed": "Read the records with NumPy and give the array to `convert` of "
        "Python: records = np.fromfile(path, dtype, offset=header_bytes)."
    },
}
# What manifests say of jobs that did not set such a setting; of others, nothing or no.
OLD_DEFAULTS: Mapping[str, Any] = {
    "encode": "raw",
    "resize_filter": "hamming",
    "max_image_seconds": 120.0,
    "segments": "auto",
    "worker_env": {},
    "worker_timeout": 300,
    "index": "auto",
    "catalogue": "auto",
}


def _instead(name: str, value: Any) -> str:
    """Returns what to do instead of a setting or value that is gone; else nothing."""
    return REMOVED.get(name) or REMOVED_VALUES.get(name, {}).get(str(value), "")


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
        if value != OLD_DEFAULTS.get(name)
        and not (name in REMOVED and value in (None, False))
    }

"""Requirements of a Dataflow job, checked before planning starts.

Without these checks Beam would search Google's services for what is missing, and fail
only after minutes.
"""

import importlib.util
import os
import re
from collections.abc import Sequence

from beam_pipeline.engines.engine import JobSettings, flag_given, has_flag
from beam_pipeline.version import __version__
from transforms.errors import SpecError, TargetError, UsageError
from transforms.storage import paths

# The ways to say what a worker has installed.
_WORKER_FLAGS = (
    *("sdk_container_image", "setup_file", "extra_package", "extra_packages"),
    "files_to_stage",
)
# With it the program ends when the job is handed over.
_DETACHING = "no_wait_until_finish"
# The form that Beam requires; for others it would try to create a bucket.
_FOLDER = re.compile(r"gs://[a-z0-9][-_a-z0-9.]+[a-z0-9]/.*", re.DOTALL)
_JOB_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
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
    for name, place, text in (
        ("source", settings.source, "source"),
        ("output", settings.output, "output"),
        ("images_root", settings.images_root, "folder of --images-root"),
    ):
        if (place or name != "images_root") and not place.startswith("gs://"):
            raise TargetError(
                f"Dataflow's workers must see the {text}, as in gs://bucket/folder; "
                f"{place!r} is not in a bucket of Google's. Copy it there first, or "
                f"run without --runner."
            )
    _check_keys()
    _check_flags(beam_flags)
    if is_detached(beam_flags):
        for name in ("vocabulary_lock", "split_lock"):
            if getattr(settings, name):
                raise SpecError(
                    f"{name} is written after the job, and with "
                    f"--no_wait_until_finish nobody waits for that. Leave either out."
                )
    _check_installed()


def _check_installed() -> None:
    try:
        found = importlib.util.find_spec(_CLIENT)
    except ModuleNotFoundError:
        found = None
    if found is None:
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
    job = flag_given(flags, "job_name")
    if job and not _JOB_NAME.fullmatch(job):
        raise UsageError(
            f"--job_name must be of a-z, 0-9 and -, from a letter to a letter or a "
            f"digit; found {job!r}."
        )

"""Engines behind Beam's job service: their masters, job servers and machines."""

import dataclasses
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_pipeline.engines.engine import (
    SERVICE_TIMEOUT,
    AddStages,
    Engine,
    JobSettings,
    Place,
    RunHooks,
    flag_given,
)
from beam_pipeline.engines.workers import (
    environment_given,
    process_flags,
    starts_elsewhere,
)
from transforms.work.reports import Reports

OPENED = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        *("java.lang", "java.util", "java.util.concurrent", "java.lang.invoke"),
        *("java.nio", "sun.nio.ch"),
    )
]
"""Options of Java from 17 on, where Flink and Spark reach into its own packages."""

# Of the output's name in the name of a job.
_NAME_CHARS = 40
# Its seconds of work end before the second compiler could pay.
_JAVA_OPTIONS = ("-Xmx1g", "-XX:TieredStopAtLevel=1", *OPENED)


def _job_name(output: str) -> str:
    """Returns the name of a job that writes an output: ASCII, for every engine."""
    named = re.sub(r"[^a-z0-9]+", "-", posixpath.basename(output.rstrip("/")).lower())
    return "-".join(filter(None, ("beam-tfrecord", named.strip("-")[:_NAME_CHARS])))


def worker_flags(place: Place) -> list[str]:
    """Returns Beam's flags of every job server: where it is, what starts workers."""
    return [
        SERVICE_TIMEOUT,
        # Else a list of all packages installed here is staged, which no worker reads.
        "--experiments=disable_logging_submission_environment",
        *([] if place.starts_elsewhere else process_flags(place.worker)),
        *([f"--job_endpoint={place.job_endpoint}"] if place.job_endpoint else []),
    ]


def java_flags(place: Place, program_flag: str) -> list[str]:
    """Returns Beam's flags of a job server in Java.

    Args:
      place: with the server's jar, and the slots of a machine.
      program_flag: Beam's flag that names the jar.
    """
    server = [
        f"--{program_flag}={place.program}",
        f"--job_server_java_launcher={place.java}",
        f"--artifacts_dir={place.artifacts}",
        *(f"--job_server_jvm_properties={option}" for option in _JAVA_OPTIONS),
    ]
    return [
        *worker_flags(place),
        # A worker waits for the next stage: a Python takes seconds to start. Those of
        # the last stage end ten seconds after the job.
        "--environment_cache_millis=10000",
        *([] if place.job_endpoint else server),
        # One Python for each slot, or they would share one interpreter's lock.
        f"--sdk_worker_parallelism={place.slots}",
    ]


def java_server(
    flags: Mapping[str, Any], port: int, jar: str, master: Sequence[str]
) -> list[str]:
    """Returns the command of a job server in Java.

    Args:
      flags: the values of Beam's flags.
      port: to listen on.
      jar: of the server.
      master: the server's own flag for the master.
    """
    return [
        flags["job_server_java_launcher"],
        *flags["job_server_jvm_properties"],
        *("-jar", jar, *master),
        *("--artifacts-dir", flags["artifacts_dir"]),
        *("--job-port", str(port)),
        *("--artifact-port", str(flags["artifact_port"])),
        *("--expansion-port", str(flags["expansion_port"])),
    ]


def _unasked(_master: str) -> None:
    """Asks nobody."""


@dataclasses.dataclass(frozen=True)
class JobServerEngine(Engine):
    """An engine that takes jobs from a job server on this machine.

    Attributes:
      master_setting: the setting that names another master; empty for none.
      master_flag: Beam's flag for the same.
      default_master: where none is named.
      program_flag: Beam's flag that names another job server.
      artifact: of the job server, in Beam's own repository; empty for a program that
        needs no Java.
      size: returns the machines of a cluster, and the slots of each, by its master;
        None for one of a slot each, as many as there is room for.
      reach: raises UsageError for a master at which nobody answers, where `size` does
        not ask it.
    """

    master_setting: str = ""
    master_flag: str = ""
    default_master: str = ""
    program_flag: str = ""
    artifact: str = ""
    size: Callable[[str], tuple[int, int]] | None = None
    reach: Callable[[str], None] = _unasked

    def check(self, settings: JobSettings, beam_flags: Sequence[str]) -> None:
        """Refuses what its workers could not see or be started with; see `Engine`."""
        from beam_pipeline.engines.places import check_pool, check_shared

        check_pool(beam_flags)
        master = self._master(settings, beam_flags)
        check_shared(self.name, master, settings, beam_flags)

    def works_elsewhere(self, settings: JobSettings, beam_flags: Sequence[str]) -> bool:
        """Whether somebody else starts the workers; see `Engine`."""
        return starts_elsewhere(beam_flags)

    def place(self, settings: JobSettings, beam_flags: Sequence[str]) -> Place:
        """Returns the master, the job server and the machines; see `Engine`."""
        # Imported here: they load slowly, and the command line imports all engines.
        from beam_pipeline.engines.places import (
            WITHIN_SERVER,
            check_job_server,
            find_java,
            find_program,
        )

        master = self._master(settings, beam_flags)
        endpoint = flag_given(beam_flags, "job_endpoint") or settings.job_endpoint or ""
        program = flag_given(beam_flags, self.program_flag) or ""
        if endpoint:
            check_job_server(endpoint)
        else:
            self.reach(master)
        if not endpoint and not program:
            program = find_program(self.name, self.artifact, self.program_flag)
        place = Place(
            worker="",
            artifacts="",
            master=master,
            program=program,
            job_endpoint=endpoint,
            starts_elsewhere=environment_given(beam_flags),
            parallelism=settings.workers if isinstance(settings.workers, int) else None,
            job_name=_job_name(settings.output),
        )
        if not self.artifact:
            return place
        given = flag_given(beam_flags, "job_server_java_launcher")
        if given is None and not endpoint:
            place = dataclasses.replace(place, java=find_java())
        if self.size is None or master in WITHIN_SERVER:
            return place
        machines, slots = self.size(master)
        if place.parallelism is None:
            place = dataclasses.replace(place, parallelism=max(machines * slots, 1))
        return dataclasses.replace(place, slots=max(slots, 1))

    def run(
        self,
        add_stages: AddStages,
        place: Place,
        hooks: RunHooks,
        *,
        work_folder: str,
        reports: Reports,
    ) -> None:
        """Runs a pipeline through the job server; see `Engine`."""
        from beam_pipeline.engines.submission import run_on_engine

        run_on_engine(
            self, place, add_stages, hooks, work_folder=work_folder, reports=reports
        )

    def _master(self, settings: JobSettings, beam_flags: Sequence[str]) -> str:
        """Returns the master that was named, or else the one of the usual port."""
        if not self.master_flag:
            return ""
        named: str | None = getattr(settings, self.master_setting)
        return flag_given(beam_flags, self.master_flag) or named or self.default_master

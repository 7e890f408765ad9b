"""Beam's job servers: Java programs that submit jobs to Flink and Spark.

Beam publishes each of them as one large jar. If the registry does not have the
installed version, the job server is built from the smaller jars of an older version.
The protocol between job servers and Python is the same in many versions of Beam. The
name of such a jar depends on the jars that it was built from.
"""

import hashlib
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from clusters.downloads import beam_version, beside, put, run_client
from clusters.failure import ClientFailure, Failure
from clusters.notes import jar_path

__all__ = ["job_server", "parts"]

_PARTS = Path(__file__).with_name("job_servers")
_POM = "{http://maven.apache.org/POM/4.0.0}"
_DIGEST_DIGITS = 12
# Strict: a checksum that differs is an error, not a warning.
_MAVEN = ("mvn", "--batch-mode", "--quiet", "--strict-checksums", "-Dstyle.color=never")


def job_server(engine: str, artifact: str) -> Path:
    """Returns the path of a job server, which Maven downloads if needed.

    Args:
      engine: "flink" or "spark".
      artifact: as Beam names the one large file.

    Raises:
      Failure: neither the jar nor its parts are available, or a download is damaged.
    """
    version = beam_version()
    path = jar_path(artifact, version)
    if path.is_file():
        return path
    made = jar_path(artifact, version, parts(engine))
    if made.is_file():
        # Jobs use the newest one, even if other versions of this script built others.
        made.touch()
        return made
    name = f"org.apache.beam:{artifact}:{version}"
    by_hand = f"Or put it at {path} by hand."
    if shutil.which("mvn") is None:
        raise Failure(f"Maven must be there to download {name}. {by_hand}")
    print(f"downloading {name} ...", file=sys.stderr)
    with beside(path) as partial:
        try:
            goal = [f"-Dartifact={name}", f"-DoutputDirectory={partial}"]
            run_client([*_MAVEN, "dependency:copy", *goal], "mvn")
            put(partial / path.name, path)
        except ClientFailure as failure:
            if "checksum" in failure.output.lower():
                raise Failure(
                    f"{failure} What came is not what was published; look at where "
                    f"Maven downloads from. {by_hand}"
                ) from failure
            print(f"it is not to be had: {failure}", file=sys.stderr)
        else:
            return path
        put(_assembled(engine, partial, by_hand), made)
    return made


def _assembled(engine: str, folder: Path, by_hand: str) -> Path:
    """Builds a job server in a folder; returns its path."""
    print(
        f"putting it together from Beam's parts, {parts(engine)} (minutes, once) ...",
        file=sys.stderr,
    )
    shutil.copyfile(_PARTS / f"{engine}.xml", folder / "pom.xml")
    try:
        run_client([*_MAVEN, "package"], "mvn", folder=str(folder))
    except Failure as failure:
        raise Failure(f"{failure} {by_hand}") from failure
    return folder / "target" / "job-server.jar"


def parts(engine: str) -> str:
    """Returns the version of Beam of a job server's parts, and a digest of them all."""
    pom = (_PARTS / f"{engine}.xml").read_bytes()
    version = ElementTree.fromstring(pom).findtext(
        f"{_POM}properties/{_POM}beam.version"
    )
    return f"{version}-{hashlib.sha256(pom).hexdigest()[:_DIGEST_DIGITS]}"

"""What the examples' Dockerfiles and Kubernetes files say, for machines to do."""

import dataclasses
import json
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.clusters.runs import ROOT

__all__ = ["Container", "Image", "configured", "containers", "image"]

IMAGE = ROOT / "examples" / "image" / "Dockerfile"
KUBERNETES = ROOT / "examples" / "kubernetes"


@dataclasses.dataclass(frozen=True)
class Image:
    """A Dockerfile.

    Attributes:
      copied: what comes from the project's folder, and to where.
      runs: commands of the shell.
      environment: of all programs.
      program: the entry point, and what it gets by default.
    """

    copied: tuple[tuple[str, str], ...]
    runs: tuple[str, ...]
    environment: Mapping[str, str]
    entry_point: tuple[str, ...]
    arguments: tuple[str, ...]


def image(path: pathlib.Path) -> Image:
    """Reads a Dockerfile of the few instructions that the examples use."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.M).replace("\\\n", "")
    found: dict[str, list[str]] = {}
    for line in filter(None, text.splitlines()):
        name, _, rest = line.partition(" ")
        found.setdefault(name, []).append(rest)
    known = ("ARG", "FROM", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD")
    assert set(found) <= set(known), found
    pairs = [each.partition("=") for env in found["ENV"] for each in shlex.split(env)]
    copies = [each.split() for each in found["COPY"]]
    return Image(
        copied=tuple((source, target) for source, target in copies),
        runs=tuple(found["RUN"]),
        environment={name: value for name, _, value in pairs},
        entry_point=tuple(json.loads(found["ENTRYPOINT"][0])),
        arguments=tuple(json.loads(found["CMD"][0])),
    )


@dataclasses.dataclass(frozen=True)
class Container:
    """A container of a pod.

    Attributes:
      image: as the file names it.
      command: instead of the image's entry point, or empty.
      arguments: of it.
      environment: what the file says itself.
      sources: of more: names of ConfigMaps and Secrets.
    """

    image: str
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    sources: tuple[str, ...]


def containers(name: str, addresses: Mapping[str, str]) -> dict[str, Container]:
    """Returns all containers of a file of examples/kubernetes, by name.

    Args:
      name: of the file.
      addresses: by the path of the field that has it in Kubernetes.
    """
    found = {}
    for document in _documents(name):
        if document["kind"] not in ("Deployment", "Job"):
            continue
        for each in document["spec"]["template"]["spec"]["containers"]:
            variables = {
                pair["name"]: pair["value"]
                if "value" in pair
                else addresses[pair["valueFrom"]["fieldRef"]["fieldPath"]]
                for pair in each.get("env", ())
            }
            found[each["name"]] = Container(
                image=each["image"],
                command=_expanded(each.get("command", ()), variables),
                arguments=_expanded(each.get("args", ()), variables),
                environment=variables,
                sources=tuple(
                    said["name"] for s in each.get("envFrom", ()) for said in s.values()
                ),
            )
    return found


def configured(name: str, config: str) -> dict[str, str]:
    """Returns the data of a ConfigMap in a file of examples/kubernetes."""
    (found,) = (
        document["data"]
        for document in _documents(name)
        if document["kind"] == "ConfigMap" and document["metadata"]["name"] == config
    )
    return dict(found)


def _documents(name: str) -> Iterator[Any]:
    yield from yaml.safe_load_all((KUBERNETES / name).read_text())


def _expanded(words: "list[str]", variables: Mapping[str, str]) -> tuple[str, ...]:
    """Puts variables into a command, as Kubernetes does."""
    return tuple(re.sub(r"\$\((\w+)\)", lambda m: variables[m[1]], w) for w in words)

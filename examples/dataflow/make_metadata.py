"""Prints `metadata.json` of the Flex Template: every flag of the program, checked.

python examples/dataflow/make_metadata.py >examples/dataflow/metadata.json
"""

import json
import re
import sys
from typing import Any

import click

from beam_pipeline.cli import convert

# Flags that mean nothing, or are refused, where a template is started.
LEFT_OUT = {
    "runner": "it is Dataflow",
    "flink_master": "of another engine",
    "spark_master": "of another engine",
    "job_endpoint": "of another engine",
    "worker_pool": "of another engine",
    "worker_command": "of another engine",
    "worker_env": "of another engine",
    "worker_timeout": "of another engine",
    "shared_output": "of another engine",
    "report": "the launcher has gone when there is a dataset to show",
    "report_json": "the launcher's disk is gone when it could be read",
    "quiet": "what is printed is the launcher's log",
    "vocabulary_lock": "it is written after the job, by whom nobody waits",
    "split_lock": "it is written after the job, by whom nobody waits",
}
# Beam's own that the walk-through uses.
BEAMS = {
    "sdk_container_image": ("Image that the workers run in.", r"^[^\s]+$"),
    "number_of_worker_harness_threads": (
        "Tasks at the same time in each process of a worker [2].",
        r"^[1-9][0-9]*$",
    ),
}
_OBJECT = r"^gs://[a-z0-9][-_a-z0-9.]+[a-z0-9]/[^\n\r]+$"
_LINE = r"^[^\n\r]+$"
# By what the help shows for the value.
_BY_METAVAR = {
    "FILE": ("GCS_READ_FILE", _OBJECT),
    "FOLDER": ("GCS_READ_FOLDER", _OBJECT),
    "DIR": ("GCS_READ_FOLDER", _OBJECT),
    "CHAR": ("TEXT", r"^[^\n\r]?$"),
    "SIZE": ("TEXT", r"^[0-9]+(\.[0-9]+)? ?([kKmMgG]?[bB]|[kKmMgG][iI][bB])?$"),
    "SHARE": ("TEXT", r"^(0(\.[0-9]+)?|1(\.0+)?)$"),
    "NAME=SHARE,...": (
        "TEXT",
        r"^[^=,\n\r]+=[0-9./]+(,[^=,\n\r]+=[0-9./]+)*$",
    ),
    "ROLE=NAME": ("TEXT", r"^[^=\n\r]+=[^\n\r]*$"),
    "N|auto": ("TEXT", r"^([1-9][0-9]*|auto)$"),
    "MODE:SIZE": (
        "TEXT",
        r"^(shorter|longer|exact|crop|pad):[1-9][0-9]*(x[1-9][0-9]*)?$",
    ),
}


def metadata() -> dict[str, Any]:
    """Returns the template's metadata."""
    options = [param for param in convert.params if isinstance(param, click.Option)]
    return {
        "name": "beam-tfrecord",
        "description": (
            "Labelled images, CSV files and tables to sharded TFRecord datasets."
        ),
        "parameters": [
            _place("source", "Folder, file or glob that is converted."),
            _place("output", "Folder of the dataset; the whole of it or nothing."),
            *(_parameter(each) for each in options if each.name not in LEFT_OUT),
            *(
                _described(name, text, "TEXT", regexes=[check])
                for name, (text, check) in BEAMS.items()
            ),
        ],
    }


def _place(name: str, text: str) -> dict[str, Any]:
    return _described(name, text, "TEXT", regexes=[_OBJECT], isOptional=False)


def _parameter(option: click.Option) -> dict[str, Any]:
    name = option.opts[0].removeprefix("--").replace("-", "_")
    text = option.help or name
    if option.multiple:
        text += " One value."
    if option.is_flag:
        return _described(name, text, "BOOLEAN", regexes=["^(true|false)$"])
    if isinstance(option.type, click.Choice):
        choices = [str(each) for each in option.type.choices]
        values = [{"value": each, "label": each} for each in choices]
        return _described(name, text, "ENUM", enumOptions=values)
    if option.metavar in _BY_METAVAR:
        kind, check = _BY_METAVAR[option.metavar]
    elif option.metavar and re.fullmatch(r"\d+(\|\d+)+", option.metavar):
        kind, check = "TEXT", f"^({option.metavar})$"
    elif isinstance(option.type, click.types.IntParamType):
        kind, check = "NUMBER", r"^[0-9]+$"
    elif isinstance(option.type, click.types.FloatParamType):
        kind, check = "NUMBER", r"^[0-9]+(\.[0-9]+)?$"
    else:
        kind, check = "TEXT", _LINE
    return _described(name, text, kind, regexes=[check])


def _described(name: str, text: str, kind: str, **more: Any) -> dict[str, Any]:
    facts = {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "helpText": text,
        "paramType": kind,
        "isOptional": True,
    }
    return facts | more


if __name__ == "__main__":
    json.dump(metadata(), sys.stdout, indent=2)
    sys.stdout.write("\n")

"""The parameters of `WriteDataset` as the spec of a job, checked before anything runs.

WriteDataset("out/x", label="species", splits="column:part", key="id", seed=7)
  -> Spec(output="out/x", label_column="species", split_column="part",
          key_column="id", seed=7)
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from beam_pipeline.planning.features import resolve
from beam_pipeline.planning.request import check_name, name_of
from beam_pipeline.settings.keywords import WriteKeywords
from beam_pipeline.settings.options import SETTINGS
from beam_pipeline.settings.removed import check_still_there
from beam_pipeline.settings.spec import Spec, make_spec
from transforms.errors import (
    BeamTFRecordError,
    SpecError,
    bounded,
    closest,
    raising_in_python,
)
from transforms.storage.paths import absolute

_SOURCE = "rows"
_COLUMN = "column:"
# Settings that have a parameter of another name.
_PARAMETERS = {
    "label_column": "label",
    "split_column": "splits='column:NAME'",
    "key_column": "key",
    "shards": "num_shards",
}
# In the words of messages, in which shards are mostly what they are.
_RENAMED = re.compile(
    r"(?<![\w'])(label_column|split_column|key_column|shards(?=[:=]| and shard_size))"
    r"(?![\w'])"
)
_OWN = (
    *("label", "splits", "key", "duplicates", "features", "like", "num_shards"),
    *("accounts", *WriteKeywords.__annotations__),
)
# Of the sections of settings that are for the reading of sources, and for the run.
_TAKEN = ("images_root", "shared_output")
_REFUSED_SECTIONS = {
    "Source": "It writes the rows that its pipeline gives. Leave it out.",
    "Run": "Options of the pipeline say how it runs. Leave it out, or use convert.",
}
_REFUSED = {
    "source": _REFUSED_SECTIONS["Source"],
    "infer": "It infers features from all rows. Leave it out.",
    "split_lock": "Give key= and the same splits= in all runs, or split_ids=.",
    "shuffle": "Rows of a pipeline have no order of their own. Leave it out.",
    "stratify_column": (
        "Rows get their splits before they are counted. Give them in a step before, "
        "with splits='column:NAME'; or convert the dataset with stratify_column."
    ),
}


def other_settings() -> list[str]:
    """Returns the settings of `convert` that `WriteDataset` has under their names."""
    own = {"output", "splits", "features", "like", *_PARAMETERS}
    return [name for name in SETTINGS if name not in own and not _refusal(name)]


@contextlib.contextmanager
def raising_of_rows() -> Iterator[None]:
    """Lets errors through with settings by their names in `WriteDataset`."""
    try:
        with raising_in_python():
            yield
    except BeamTFRecordError as error:
        named = _RENAMED.sub(lambda found: _PARAMETERS[found[0]], str(error))
        error.args = (bounded(named), *error.args[1:])
        raise


def spec_of(
    output: str | os.PathLike[str],
    *,
    label: str | None,
    splits: Mapping[str, str | float] | str | None,
    key: str | None,
    num_shards: int | None = None,
    settings: Mapping[str, Any],
) -> Spec:
    """Returns the spec that the parameters say.

    Args:
      output, label, splits, key, num_shards: as those of `WriteDataset`.
      settings: its other parameters.

    Raises:
      SpecError: a parameter is wrong or gone, or is not for rows of a pipeline.
    """
    check_still_there(settings)
    for name in settings:
        if refusal := _refusal(name):
            raise SpecError(refusal)
    given: dict[str, Any] = {**settings, "source": _SOURCE}
    is_column = isinstance(splits, str) and splits.startswith(_COLUMN)
    given |= {
        "output": os.fspath(output) if isinstance(output, os.PathLike) else output,
        "label_column": label,
        "key_column": key,
        "shards": num_shards,
        "split_column": str(splits).removeprefix(_COLUMN) if is_column else None,
    }
    if not is_column:
        given["splits"] = splits
    for name in ("output", "label_column", "split_column", "key_column"):
        if given[name] == "":
            shown = _PARAMETERS.get(name, name)
            raise SpecError(f"{shown} must not be empty. Name one, or leave it out.")
    with raising_of_rows():
        spec = make_spec({k: v for k, v in given.items() if v is not None})
        _check_apart(spec)
        name = name_of(spec, "")
        check_name(name, spec.splits or ())
        return _as_seen_here(spec).model_copy(update={"name": name})


def _as_seen_here(spec: Spec) -> Spec:
    """Returns the spec of parameters with vocabularies read, and absolute paths."""
    names = ("images_root", "split_ids", "like")
    paths = {name: absolute(path) for name in names if (path := getattr(spec, name))}
    return resolve(spec).model_copy(update=paths)


def _refusal(name: str) -> str:
    """Returns why a setting is refused; empty for one that is taken."""
    setting = SETTINGS.get(name)
    if name in _PARAMETERS:
        return f"WriteDataset calls {name} {_PARAMETERS[name]}. Give it by that name."
    if name in _TAKEN:
        return ""
    if setting is None:
        near = closest(name, _OWN)
        meant = f" (did you mean {near!r}?)" if near else ""
        return (
            f"WriteDataset has no parameter {name!r:.80}{meant}. Leave it out, or give "
            f"the right name."
        )
    why = _REFUSED.get(name) or _REFUSED_SECTIONS.get(setting.section)
    return f"WriteDataset does not take {name}. {why}" if why else ""


def _check_apart(spec: Spec) -> None:
    """Raises SpecError where other parameters name the column of the splits, too."""
    needed = {"label": spec.label_column, "key": spec.key_column}
    for parameter, name in needed.items():
        if name and name == spec.split_column:
            raise SpecError(
                f"The column that names the split is not stored, and cannot be the "
                f"{parameter}, too; found {name!r:.80} for both. Add a copy of it to "
                f"the rows under another name."
            )

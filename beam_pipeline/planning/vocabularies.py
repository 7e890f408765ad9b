"""Label vocabularies of a job: given, locked, and kept for the next run."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

from beam_pipeline.settings.spec import Spec
from transforms.core.manifest import Manifest
from transforms.core.placing.vocabulary import (
    Vocabulary,
    format_lock,
    parse_lock,
    parse_names,
)
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import COMMITTED_NOTE, CommitError, SpecError, StorageError
from transforms.storage.files import storage
from transforms.storage.paths import absolute


def class_names(given: Sequence[str] | str) -> tuple[str, ...]:
    """Returns class names as the spec gives them: a list, or a file of one a line.

    Raises:
      SpecError: the file cannot be read, or names a class twice.
    """
    if not isinstance(given, str):
        return tuple(given)
    try:
        data = storage(given).read_bytes()
    except OSError as error:
        raise SpecError(
            f"The vocabulary {given!r} must be readable: {error.strerror}."
        ) from error
    return parse_names(data, path=given)


def resolve(spec: Spec) -> Spec:
    """Returns the job with the class names of files in place of their paths.

    Planning goes by the result: a file that changes meanwhile cannot give a plan that
    contradicts itself.

    Raises:
      SpecError: a file cannot be read, or does not hold what it should.
    """
    update: dict[str, Any] = {}
    given = {name: said.vocabulary for name, said in spec.features.items()}
    named = [
        given_names
        for given_names in (spec.vocabulary, *given.values())
        if given_names is not None
    ]
    # Several features may name one file.
    paths = dict.fromkeys(
        given_names for given_names in named if isinstance(given_names, str)
    )
    names = {path: list(class_names(path)) for path in paths}
    if isinstance(spec.vocabulary, str):
        update["vocabulary"] = names[spec.vocabulary]
    update["features"] = {
        name: said.model_copy(update={"vocabulary": names[said.vocabulary]})
        if isinstance(said.vocabulary, str)
        else said
        for name, said in spec.features.items()
    }
    return spec.model_copy(update=update)


def vocabularies_of(
    schema: Schema,
    spec: Spec,
    *,
    read: Callable[[str], tuple[str, ...] | None] | None = None,
) -> dict[str, Vocabulary]:
    """Returns what is known beforehand of each label's class names.

    Args:
      schema: of the rows.
      spec: of the job.
      read: returns the names of the lock at a path; by default it is read now.

    Raises:
      SpecError: the lock cannot be read, or there is no one label that it is for.
    """
    locked_feature = _locked(schema, spec)
    out = {}
    for feature in schema.of_kind(Kind.LABEL):
        mine = locked_feature is not None and feature.name == locked_feature.name
        locked = (read or read_names)(str(spec.vocabulary_lock)) if mine else None
        if feature.vocabulary is not None or locked is not None:
            vocabulary = Vocabulary.of(feature.vocabulary, locked, feature.unknown)
            out[feature.name] = dataclasses.replace(vocabulary, lock=locked or ())
    return out


def keep_names(
    manifest: Manifest, schema: Schema, spec: Spec, known: dict[str, Vocabulary]
) -> None:
    """Writes the lock that `vocabulary_lock` names, after the commit.

    Raises:
      CommitError: it could not be written; one that was there is as it was.
    """
    feature = _locked(schema, spec)
    if feature is None:
        return
    facts = next(f for f in manifest.features if f.feature.name == feature.name)
    vocabulary = known.get(feature.name, Vocabulary())
    path = absolute(str(spec.vocabulary_lock))
    text = format_lock(vocabulary.to_lock(facts.classes))
    try:
        with storage(path).create(attempts=os.path.dirname(path)) as file:
            file.write(text)
    except (OSError, StorageError) as error:
        failure = CommitError(
            f"The dataset was published, but its vocabulary lock {path!r} could not be "
            f"written: {getattr(error, 'strerror', None) or error}. Run again with "
            f"--overwrite once it can be, or the next run may number classes otherwise."
        )
        failure.add_note(COMMITTED_NOTE)
        raise failure from error


def _locked(schema: Schema, spec: Spec) -> Feature | None:
    """Returns the label that the lock is for."""
    if spec.vocabulary_lock is None:
        return None
    labels = schema.of_kind(Kind.LABEL)
    chosen = [f for f in labels if f.is_label] or list(labels)
    if len(chosen) != 1:
        names = ", ".join(f.name for f in chosen) or "none"
        raise SpecError(
            f"vocabulary_lock is for the one label of the source; found {names}. Name "
            f"the label with label_column."
        )
    return chosen[0]


def read_names(path: str) -> tuple[str, ...] | None:
    """Returns the names of a lock; None where there is none.

    Raises:
      SpecError: it cannot be read, or is no lock.
    """
    try:
        return parse_lock(storage(path).read_bytes(), path=path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SpecError(
            f"The lock {path!r} must be readable: {error.strerror}."
        ) from error

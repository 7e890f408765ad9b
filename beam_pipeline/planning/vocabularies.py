"""Label vocabularies of a job: in the spec, or in files that it names."""

from collections.abc import Sequence
from typing import Any

from beam_pipeline.settings.spec import Spec
from transforms.core.placing.vocabulary import Vocabulary, parse_names
from transforms.core.schema import Kind, Schema
from transforms.errors import SpecError
from transforms.storage.files import storage


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


def vocabularies_of(schema: Schema) -> dict[str, Vocabulary]:
    """Returns what is known beforehand of each label's class names."""
    return {
        feature.name: Vocabulary(feature.vocabulary, feature.unknown)
        for feature in schema.of_kind(Kind.LABEL)
        if feature.vocabulary is not None
    }

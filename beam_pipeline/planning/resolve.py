"""The files that settings name, read once: a job goes by one state of each."""

from typing import Any

from beam_pipeline.planning.features.vocabularies import class_names
from beam_pipeline.settings.spec import Spec


def resolve(spec: Spec) -> Spec:
    """Returns the job with what files say in place of their paths.

    These are the vocabularies. Planning goes by the result: a file that changes
    meanwhile cannot give a plan that contradicts itself.

    Raises:
      SpecError: a file cannot be read, or does not hold what it should.
    """
    update: dict[str, Any] = {}
    given = {name: said.vocabulary for name, said in spec.features.items()}
    named = [each for each in (spec.vocabulary, *given.values()) if each is not None]
    # Several features may name one file.
    paths = dict.fromkeys(each for each in named if isinstance(each, str))
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

"""Classes of a folder of images beside those that a job gives or keeps."""

import dataclasses
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.planning.inputs import PlannedSource
from beam_pipeline.terminal.words import count_text
from transforms.core.placing.vocabulary import UNKNOWN_NAME, Vocabulary
from transforms.core.schema import Unknown
from transforms.errors import bounded, first_few

# The column of the listing, and how many names a note has.
_LABEL = "label"
_SHOWN = 5


def with_known_classes(
    planned: PlannedSource, vocabularies: Mapping[str, Vocabulary]
) -> tuple[PlannedSource, list[str]]:
    """Returns what was planned, with the classes that records will have, and notes.

    Args:
      planned: the source; its `classes` are those of the folders.
      vocabularies: what is known beforehand of each label's class names.
    """
    classes, notes = dict(planned.classes), []
    for name, found in planned.classes.items():
        vocabulary = vocabularies.get(name)
        if vocabulary is None:
            continue
        settled = vocabulary.settled(pa.array(found, pa.string()))
        classes[name] = tuple(settled.to_pylist())
        known = set(vocabulary.given)
        lacking = [each for each in found if each not in known]
        if lacking and vocabulary.unknown is not Unknown.APPEND:
            records = _records(planned, lacking)
            notes.append(_note(name, lacking, records, vocabulary.unknown))
    return dataclasses.replace(planned, classes=classes), notes


def _records(planned: PlannedSource, names: list[str]) -> dict[str, int]:
    """Returns how many images of the listing have each of some classes."""
    out = dict.fromkeys(names, 0)
    wanted = pa.array(names, pa.string())
    for batch in planned.listing.batches():
        found = batch[_LABEL].filter(pc.is_in(batch[_LABEL], value_set=wanted))
        for pair in found.value_counts().to_pylist():
            out[pair["values"]] += pair["counts"]
    return out


def _note(
    feature: str, lacking: list[str], records: Mapping[str, int], unknown: Unknown
) -> str:
    shown = [
        f"{name!r:.80} ({count_text(records[name], 'record')})"
        if records
        else f"{name!r:.80}"
        for name in lacking
    ]
    text = (
        f"{count_text(len(lacking), 'class', 'classes')} of {feature!r} not in the "
        f"vocabulary: {first_few(shown, _SHOWN)}; "
    )
    if unknown is Unknown.OOV:
        return bounded(f"{text}the records get the class {UNKNOWN_NAME!r}")
    return bounded(
        f"{text}the records are rejected. Add the names, leave the files out with "
        f"--exclude 'NAME/', or give --unknown-label oov"
    )

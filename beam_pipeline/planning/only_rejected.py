"""`--only-rejected`: convert only the rows that an earlier run rejected."""

import dataclasses
import hashlib
import os
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_pipeline.planning.inputs import PlannedSource
from beam_pipeline.terminal.words import count_text
from transforms.core.manifest import FeatureFacts
from transforms.core.placing.vocabulary import Vocabulary
from transforms.core.schema import Kind, Schema
from transforms.errors import UsageError
from transforms.formats.selected import SelectedSource
from transforms.formats.source import Source
from transforms.publishing.earlier_rejects import find_rejects
from transforms.work.split_locks import write_table
from transforms.work.store import Store

__all__ = ["Selection", "select_rejected"]

# How many features a note names.
_SHOWN = 5


@dataclasses.dataclass(frozen=True, eq=False)
class Selection:
    """The items that a job is to read.

    Attributes:
      by: the dataset or the failed run that rejected them.
      places: their hashes, ascending; see `transforms.core.placing.selection`.
      digest: of these: it decides bytes, where they come from does not.
      features: of that dataset by name; none of a failed run.
      content: the columns whose content decided the splits of that dataset's rows;
        empty where something else did. None of a failed run, which does not say.
    """

    by: str
    places: npt.NDArray[np.uint64]
    digest: str
    features: Mapping[str, FeatureFacts]
    content: tuple[str, ...] | None = None

    def places_in(self, folder: str) -> str:
        """Returns where the list is in a work folder."""
        return os.path.join(folder, "only_rejected.arrow")

    def store_places(self, store: Store) -> None:
        """Puts what workers look up into the work folder, which must exist."""
        table = pa.table({"place": pa.array(self.places)})
        write_table(table, self.places_in(store.folder), attempts=store.attempts)

    def of(self, source: Source, store: Store) -> Source:
        """Returns the selected rows of a source."""
        return SelectedSource(
            source, self.places_in(store.folder), self.digest, source.listing
        )

    def named(
        self, known: dict[str, Vocabulary], schema: Schema
    ) -> dict[str, Vocabulary]:
        """Returns the vocabularies with the class ids that the other dataset has.

        What the job itself says of a label holds.
        """
        out = dict(known)
        for feature in schema.of_kind(Kind.LABEL):
            facts = self.features.get(feature.name)
            if facts is not None and facts.classes and feature.name not in known:
                out[feature.name] = Vocabulary.of(None, facts.classes, feature.unknown)
        return out

    def notes(self, schema: Schema) -> list[str]:
        """Returns what a person should know before the run."""
        out = [
            f"only the {count_text(len(self.places), 'item')} that {self.by} rejected"
        ]
        ours = {f.name: (f.kind, f.shape) for f in schema.stored}
        theirs = {
            n: (f.feature.kind, f.feature.shape) for n, f in self.features.items()
        }
        differing = [n for n in ours | theirs if ours.get(n) != theirs.get(n)]
        if theirs and differing:
            out.append(
                f"not the features of {self.by}: {', '.join(differing[:_SHOWN])}; "
                f"declare them by `features` of a spec to have all records alike"
            )
        return out

    def scaled(self, planned: PlannedSource) -> PlannedSource:
        """Returns what was planned, with the sizes of the selected rows."""
        records = sum(planned.records.values())
        share = min(len(self.places) / records, 1.0) if records else 1.0
        return dataclasses.replace(
            planned,
            records={k: round(n * share) for k, n in planned.records.items()},
            record_bytes={k: round(n * share) for k, n in planned.record_bytes.items()},
            rows_bytes=round(planned.rows_bytes * share),
            counted=False,
        )


def select_rejected(path: str) -> Selection:
    """Returns the items that a dataset or a failed run rejected.

    Raises:
      UsageError: there is no such thing, or it rejected nothing.
      DamageError: its rejects are damaged.
    """
    found = find_rejects(path)
    places = found.places()
    if not len(places):
        raise UsageError(
            f"The run that only_rejected names must have rejected something; "
            f"{path!r} has rejected nothing. There is nothing left to convert."
        )
    manifest = found.manifest
    features = () if manifest is None else manifest.features
    return Selection(
        by=path,
        places=places,
        digest=hashlib.sha256(places.tobytes()).hexdigest(),
        features={facts.feature.name: facts for facts in features},
        content=None if manifest is None else manifest.content_columns,
    )

"""The account of a read source, from `ReadRows` to `WriteDataset`."""

from typing import NamedTuple

import apache_beam as beam

from beam_pipeline.own_pipelines.read_source import ReadSource
from transforms.core.model import ReadFacts, RejectLog


class ReadAccounts(NamedTuple):
    """What `ReadRows` has read, for `WriteDataset(..., accounts=read.accounts)`.

    Attributes:
      facts: a ReadFacts for each piece of the source, and a RejectLog for each with
        rejects.
      source: what is known of the source already.
    """

    facts: beam.PCollection[ReadFacts | RejectLog]
    source: ReadSource

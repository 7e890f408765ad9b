"""NVIDIA DALI: a pipeline over the shards and their text indexes.

For a number that a record lacks, version 2.4.0 gives what is in the memory, whatever
the default is. So features that are sometimes missing are not read.
"""

from beam_pipeline.reader_programs.facts import WIDTH, Facts, assigned_list, literal
from transforms.core.manifest import FeatureFacts
from transforms.core.schema import Kind
from transforms.errors import UsageError


def program(facts: Facts) -> str:
    """Returns the program.

    Raises:
      UsageError: the shards are compressed, which DALI cannot read.
    """
    if facts.manifest.compression != "none":
        raise UsageError(
            f"DALI reads no compressed shards, and these are "
            f"{facts.manifest.compression}. Convert again with --compression none."
        )
    # DALI gives the bytes of a tensor, not its numbers.
    arrays = [f for f in facts.arrays if f.feature.kind is not Kind.TENSOR]
    features = [each for each in arrays if not facts.is_missing(each)]
    facts.check(features, "dali")
    names = [each.feature.name for each in features]
    split = facts.split
    count = len(split.shards)
    description = "\n".join(f"    {_entry(each)}" for each in features)
    imports, decode = "fn, pipeline_def", ""
    returned = "tuple(row[name] for name in COLUMNS)"
    if facts.image:
        imports = "fn, pipeline_def, types"
        decode = f"""
    # device="mixed" decodes on a GPU, which device_id names
    image = fn.decoders.image(row[{literal(facts.image)}], output_type=types.RGB)
    image = fn.resize(image, size=[{facts.size}, {facts.size}])"""
        returned = "image, *(row[name] for name in COLUMNS[1:])"
    missing = [f.feature.name for f in arrays if facts.is_missing(f)]
    warning = ""
    if missing:
        shown = f"# not read, since some records lack it: {', '.join(missing)}"[:WIDTH]
        warning = f"# a missing number would be any number, not the default\n{shown}\n"
    return f"""\
{facts.heading}
import nvidia.dali.tfrecord as tfrec
from nvidia.dali import {imports}

DIRECTORY = {literal(facts.shard_folder)}
NAME = {literal(f"{facts.manifest.name}-{split.name}.tfrecord")}
SHARDS = [f"{{NAME}}-{{i:05d}}-of-{count:05d}" for i in range({count})]
{chr(10).join(assigned_list("COLUMNS", names))}
{warning}DESCRIPTION = {{
{description}
}}


@pipeline_def(batch_size=32, num_threads=2, device_id=None)
def batches():
    row = fn.readers.tfrecord(
        path=[f"{{DIRECTORY}}/{{shard}}" for shard in SHARDS],
        # `beam-tfrecord index DATASET --text` makes them where there are none
        index_path=[f"{{DIRECTORY}}/index/{{shard}}.idx" for shard in SHARDS],
        features=DESCRIPTION,
        random_shuffle=True,
        initial_fill=1024,  # records to choose from
        prefetch_queue_depth=2,
        name="reader",
    ){decode}
    return {returned}


# DALI checks no checksum: `beam-tfrecord verify` does
pipeline = batches()
pipeline.build()
print(pipeline.epoch_size("reader"), "records")
for name, values in zip(COLUMNS, pipeline.run()):
    print(name, values.dtype, values.shape()[:3])
"""


def _entry(facts: FeatureFacts) -> str:
    """Returns the line that describes a feature."""
    feature = facts.feature
    shape = list(feature.shape) if feature.is_list else []
    match feature.kind:
        case Kind.IMAGE:
            dtype, default = "string", '""'
        case Kind.FLOAT:
            dtype, default = "float32", "0.0"
        case _:
            dtype, default = "int64", "0"
    described = f"tfrec.FixedLenFeature({shape}, tfrec.{dtype}, {default})"
    return f"{literal(feature.name)}: {described},"

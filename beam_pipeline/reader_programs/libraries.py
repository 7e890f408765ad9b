"""Programs that read a dataset, one function for each library but TensorFlow.

| program | reads with                                                               |
| ------- | ------------------------------------------------------------------------ |
| beam    | `ReadDataset` in a pipeline                                              |
| dali    | a pipeline of NVIDIA DALI over the shards and their text indexes         |
| grain   | a MapDataset over a split, with Grain's own shuffle and threads          |
| keras   | Keras 3: a PyDataset over a split, for any backend, without TensorFlow   |
| pandas  | a split as a DataFrame, whole or in batches                              |
| torch   | a DataLoader over a split, which is a map-style dataset as it is         |

For a number that a record lacks, version 2.4.0 of DALI gives what is in the memory,
whatever the default is. So features that are sometimes missing are not read.
"""

from collections.abc import Sequence

from beam_pipeline.reader_programs.facts import WIDTH, Facts, assigned, literal
from transforms.core.manifest import FeatureFacts
from transforms.core.schema import Kind
from transforms.errors import UsageError

_OPEN_DATASET = "from beam_tfrecord import open_dataset"
# What `prepare` needs.
_DECODING = ("import numpy as np", "from PIL import Image")
_COLLATE = '''
def collate(rows):
    """Makes a batch: feature name -> tensor, or list of texts."""
    return default_collate([prepare(row) for row in rows])

'''


def _imports(*lines: str, image: str, standard: Sequence[str] = ()) -> str:
    """Returns import statements, in the order of isort.

    Args:
      lines: of libraries.
      image: the feature that `prepare` decodes; empty for none.
      standard: modules of Python.
    """
    if image:
        lines, standard = (*lines, *_DECODING), ("import io", *standard)
    ordered = sorted({*lines}, key=lambda line: (line.startswith("from"), line.lower()))
    return "\n".join((*standard, *([""] if standard else []), *ordered))


def _decoding(image: str, *, channels_first: bool = False) -> str:
    """Returns a function that decodes the image of a row with Pillow; empty for none.

    Args:
      image: name of the feature.
      channels_first: whether its array has the shape [3, height, width].
    """
    if not image:
        return ""
    name = literal(image)
    pixels, order = "pixels", "channels last"
    if channels_first:
        pixels, order = "pixels.transpose(2, 0, 1)", "channels first"
    return f'''
def prepare(row):
    """Decodes the image of a row and resizes it: 0 to 1, {order}."""
    image = Image.open(io.BytesIO(row[{name}])).convert("RGB")
    pixels = np.asarray(image.resize((SIZE, SIZE)), np.float32) / 255
    return row | {{{name}: {pixels}}}

'''


def beam(facts: Facts) -> str:
    """Returns the program for Beam."""
    features = facts.batched
    facts.check(features, "beam")
    imports = _imports(
        "import apache_beam as beam",
        "from beam_tfrecord import ReadDataset",
        image=facts.image,
    )
    prepare = '\n            | "Prepare" >> beam.Map(prepare)' if facts.image else ""
    choice = facts.choice(features).partition("# in place of")[0].rstrip()
    split = literal(facts.split.name)
    return f"""\
{facts.heading}
{imports}

# a missing value is None; labels are names, or ids with labels="ids"
{choice}

{_decoding(facts.image)}
def show(batches):
    \"\"\"Prints batches, which are lists of rows.\"\"\"
    for batch in batches:
        print(len(batch), "rows of", list(batch[0]))


if __name__ == "__main__":
    # this runs here; options name another runner, whose machines see the path
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        batches = (
            pipeline
            | "Read" >> ReadDataset({literal(facts.directory)}, {split}, COLUMNS)
            # rows come in no order; a shard is read by one worker, so spread them
            | "Spread" >> beam.Reshuffle(){prepare}
            | "Batch" >> beam.BatchElements(min_batch_size=32, max_batch_size=32)
        )
        one = batches | "Choose" >> beam.combiners.Sample.FixedSizeGlobally(1)
        one | "Show" >> beam.Map(show)
"""


def dali(facts: Facts) -> str:
    """Returns the program for DALI.

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
    features = [column for column in arrays if not facts.is_missing(column)]
    facts.check(features, "dali")
    names = [column.feature.name for column in features]
    split = facts.split
    count = len(split.shards)
    description = "\n".join(f"    {_dali_entry(column)}" for column in features)
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
{chr(10).join(assigned("COLUMNS", names))}
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


def _dali_entry(facts: FeatureFacts) -> str:
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


def grain(facts: Facts) -> str:
    """Returns the program for Grain."""
    features = facts.batched
    facts.check(features, "grain")
    imports = _imports("import grain", _OPEN_DATASET, image=facts.image)
    prepare = "\n        .map(prepare)" if facts.image else ""
    return f"""\
{facts.heading}
{imports}

# batch() takes no None and no lists of different lengths
{facts.choice(features)}

{_decoding(facts.image)}
if __name__ == "__main__":
    dataset = {facts.opening(features)}{facts.class_note}
    rows = dataset[{literal(facts.split.name)}].select(COLUMNS)
    batches = (
        grain.MapDataset.source(rows)
        .shuffle(seed=1){prepare}
        .batch(32)
        # an epoch; .repeat() before it goes on for ever
        .to_iter_dataset(grain.ReadOptions(num_threads=4, prefetch_buffer_size=128))
    )
    print(len(rows), "records")
    # iter(batches).get_state() says where it is, for a checkpoint
    for name, values in next(iter(batches)).items():
        print(name, values.dtype, values.shape)
"""


def keras(facts: Facts) -> str:
    """Returns the program for Keras."""
    features = _keras_features(facts)
    facts.check(features, "keras")
    imports = _imports(
        *("import keras", "import numpy as np", _OPEN_DATASET),
        image=facts.image,
        standard=["import math"],
    )
    names = [column.feature.name for column in features]
    inputs = [name for name in names if name != facts.label]
    one = len(inputs) == 1
    returned = f"batch[{literal(inputs[0])}]" if one else "batch"
    what = "An array" if one else "Feature name -> array"
    if inputs == [facts.image]:
        what = "Images"
    if facts.label in names:
        target = literal(facts.label)
        returned += f", batch[{target}]" if one else f", batch.pop({target})"
        what += ", and what is to be predicted"
    prepare = "\n        rows = [prepare(row) for row in rows]" if facts.image else ""
    return f"""\
{facts.heading}
{imports}

{facts.choice(features)}

{_decoding(facts.image)}
class Batches(keras.utils.PyDataset):
    \"\"\"Batches of a split, in another order in each epoch.\"\"\"

    def __init__(self, rows, size=32, **options):
        super().__init__(**options)
        self.rows, self.size, self.epoch = rows, size, 0
        self.shuffled = rows.shuffled(seed=1, epoch=0)

    def __len__(self):
        return math.ceil(len(self.rows) / self.size)

    def __getitem__(self, index):
        \"\"\"{what}.\"\"\"
        rows = self.shuffled[index * self.size : (index + 1) * self.size]{prepare}
        batch = {{name: np.stack([row[name] for row in rows]) for name in rows[0]}}
        return {returned}

    def on_epoch_end(self):
        self.epoch += 1
        self.shuffled = self.rows.shuffled(seed=1, epoch=self.epoch)


if __name__ == "__main__":
    dataset = {facts.opening(features)}{facts.class_note}
    # workers are threads that prepare batches ahead of model.fit(batches, epochs=...)
    batches = Batches(dataset[{literal(facts.split.name)}].select(COLUMNS), workers=2)
    print(len(batches.rows), "records,", len(batches), "batches")
{_first_batch(inputs, facts.label if facts.label in names else "")}\
{_training(facts)}"""


def _keras_features(facts: Facts) -> Sequence[FeatureFacts]:
    """Returns what batches hold: of images no size or depth, which is no input."""
    if not facts.image:
        return facts.arrays
    names = (facts.image, facts.label)
    return [column for column in facts.arrays if column.feature.name in names]


def _first_batch(inputs: Sequence[str], label: str) -> str:
    """Returns the lines that print the first batch."""
    if len(inputs) != 1:
        target = ", target" if label else ""
        return f"""\
    inputs{target} = batches[0]
    for name, values in inputs.items():
        print(name, values.dtype, values.shape)
"""
    (name,) = map(literal, inputs)
    if not label:
        return f"""\
    values = batches[0]
    print({name}, values.dtype, values.shape)
"""
    return f"""\
    values, target = batches[0]
    print({name}, values.dtype, values.shape)
    print({literal(label)}, target.dtype, target.shape)
"""


def _training(facts: Facts) -> str:
    """Returns the lines that train a small model and use it; "" without classes."""
    if facts.classified is None:
        return ""
    image, label = literal(facts.image), literal(facts.label)
    validation = validated = ""
    if facts.validation:
        split = literal(facts.validation)
        validation = f"\n    validation = Batches(dataset[{split}].select(COLUMNS))"
        validated = ", validation_data=validation"
    return f"""
    # a small model, to be replaced by yours{validation}
    classes = dataset.classes[{label}]
    model = keras.Sequential(
        [
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(len(classes), activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(batches{validated}, epochs=1)

    # of a file: prepare({{{image}: open("photo.jpg", "rb").read()}})
    row = prepare(dataset[{literal(facts.unseen)}][0])
    scores = model.predict(row[{image}][None], verbose=0)[0]
    print(classes[row[{label}]], "is taken for", classes[scores.argmax()])
"""


def pandas(facts: Facts) -> str:
    """Returns the program for pandas."""
    read = [
        column for column in facts.features if column.feature.kind is not Kind.IMAGE
    ]
    facts.check(read, "pandas")
    columns = "\n".join(assigned("COLUMNS", [column.feature.name for column in read]))
    imports, image = "import pandas\nfrom beam_tfrecord import open_dataset", ""
    if facts.image:
        imports = f"import io\n\n{imports}\nfrom PIL import Image"
        name = literal(facts.image)
        image = f"""
# all images would fill the memory; a row has its own
image = Image.open(io.BytesIO(rows[0][{name}])).resize(({facts.size}, {facts.size}))
print(image)
"""
    return f"""\
{facts.heading}
{imports}

{columns}

dataset = open_dataset({literal(facts.directory)}, labels="names")
rows = dataset[{literal(facts.split.name)}]

# whole numbers with missing values become float64, which is exact up to 2**53
frame = pandas.DataFrame.from_arrow(rows.select(COLUMNS))
print(len(frame), "records")
print(frame.head())

# a split that is larger than the memory: batches, shuffled
for batch in rows.select(COLUMNS).shuffled(seed=1, epoch=0).batches(256):
    print(batch.to_pandas().head())
    break
{image}"""


def torch(facts: Facts) -> str:
    """Returns the program for PyTorch."""
    features = facts.batched
    facts.check(features, "torch")
    loader = "from torch.utils.data import DataLoader"
    loader += ", default_collate" if facts.image else ""
    imports = _imports(loader, _OPEN_DATASET, image=facts.image)
    split = facts.split.name
    functions = collate = ""
    if facts.image:
        functions = _decoding(facts.image, channels_first=True) + _COLLATE
        collate = "\n        collate_fn=collate,"
    return f"""\
{facts.heading}
{imports}

# DataLoader takes no None, no datetimes and no lists of different lengths
{facts.choice(features)}

{functions}
if __name__ == "__main__":  # the processes of DataLoader may import this file
    dataset = {facts.opening(features)}{facts.class_note}
    rows = dataset[{literal(split)}].select(COLUMNS)
    # to go on at a step of an epoch: without shuffle=True, and instead of rows
    # rows.shuffled(seed=1, epoch=3)[step * 32 :], which is the same order each time
    loader = DataLoader(
        rows,
        batch_size=32,
        shuffle=True,{collate}
        num_workers=2,  # no record comes twice: each worker is given its positions
        prefetch_factor=4,
    )
    print(len(rows), "records,", len(loader), "batches")
    for name, values in next(iter(loader)).items():
        print(name, getattr(values, "dtype", ""), getattr(values, "shape", values[:3]))
"""

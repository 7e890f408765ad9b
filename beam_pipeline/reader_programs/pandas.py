"""pandas: a split as a DataFrame, whole or in batches."""

from beam_pipeline.reader_programs.facts import Facts, assigned_list, literal
from transforms.core.schema import Kind


def program(facts: Facts) -> str:
    """Returns the program."""
    read = [each for each in facts.features if each.feature.kind is not Kind.IMAGE]
    facts.check(read, "pandas")
    columns = "\n".join(assigned_list("COLUMNS", [each.feature.name for each in read]))
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

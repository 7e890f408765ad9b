"""Layouts against the recogniser of each, none of them, and damaged annotations."""

import json
import pathlib
import random
from collections import Counter
from collections.abc import Mapping

import pytest

from beam_pipeline.planning.images import with_masks
from beam_pipeline.planning.inputs import find_inputs
from beam_pipeline.planning.recognition import head_in
from beam_pipeline.settings.spec import make_spec
from tests.support.box_layouts import write_layout
from tests.support.detection import planned, read_planned, write_image
from tests.support.fuzzing import at_most, mutated
from transforms.errors import MAX_MESSAGE_BYTES, BeamTFRecordError, InputError
from transforms.formats.file_names import is_image_name
from transforms.formats.pairs import find_layout
from transforms.formats.registry import FORMATS
from transforms.storage.file_list import FileList
from transforms.storage.files import storage

Folder = pathlib.Path
BOX = "0 0.5 0.5 0.5 0.5\n"
YAML = "names: [cat]\ntrain: images\n"
COCO = json.dumps({"images": [], "annotations": [], "categories": []})
LABELME = json.dumps({"shapes": [], "imagePath": "a.jpg"})
VOC = "<annotation><filename>a.jpg</filename></annotation>"
CSV = "filename,xmin,ymin,xmax,ymax,class\na.jpg,0,0,1,1,cat\n"
DETECTION = ("coco", "labelme", "voc", "yolo", "boxes_csv", "automl")
# Texts by path; every path that ends like an image is one.
SAMPLES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "COCO": ("coco", {"val2017/a.jpg": "", "annotations/instances_val.json": COCO}),
    "COCO with many classes in front": (
        "coco",
        {"a.jpg": "", "a.json": f'{{"categories": [{"0, " * 40_000}'},
    ),
    "COCO whose start ends inside a character": (
        "coco",
        {"a.jpg": "", "a.json": f'{{"images": ["{"é" * 40_000}'},
    ),
    "Roboflow COCO": ("coco", {"train/a.jpg": "", "train/_annotations.json": COCO}),
    "LabelMe": ("labelme", {"a.jpg": "", "a.json": LABELME}),
    "VOC": ("voc", {"JPEGImages/a.jpg": "", "Annotations/a.xml": VOC}),
    "Ultralytics": (
        "yolo",
        {"images/a.jpg": "", "labels/a.txt": BOX, "data.yaml": YAML},
    ),
    "Roboflow YOLO": (
        "yolo",
        {
            "train/images/a.jpg": "",
            "train/labels/a.txt": BOX,
            "data.yaml": "train: ../train/images\nnc: 1\nnames: ['cat']\n",
            "README.roboflow.txt": "A dataset of cats.\n",
        },
    ),
    "CVAT": (
        "yolo",
        {
            "obj_train_data/a.jpg": "",
            "obj_train_data/a.txt": BOX,
            "obj.names": "cat\n",
            "train.txt": "data/obj_train_data/a.jpg\n",
        },
    ),
    "Label Studio": (
        "yolo",
        {
            "images/a.jpg": "",
            "labels/a.txt": BOX,
            "classes.txt": "cat\n",
            "notes.json": '{"categories": [{"id": 0, "name": "cat"}], "info": {}}',
        },
    ),
    "labels in capitals": ("yolo", {"Images/a.png": "", "Labels/a.txt": BOX}),
    "labels without names": ("yolo", {"images/a.png": "", "labels/a.txt": BOX}),
    "labels beside images": (
        "yolo",
        {"x/a.jpg": "", "x/a.txt": BOX, "x/b.jpg": "", "x/b.txt": ""},
    ),
    "a broken label of 11": (
        "yolo",
        {
            **{f"images/{n}.jpg": "" for n in range(11)},
            **{f"labels/{n}.txt": BOX if n else "x .5 .5 .2 .2" for n in range(11)},
        },
    ),
    "outlines": ("yolo", {"images/a.jpg": "", "labels/a.txt": "0 0 0 1 0 1 1\n"}),
    "tutorial": ("boxes_csv", {"images/a.jpg": "", "train_labels.csv": CSV}),
    "keras-retinanet": ("boxes_csv", {"a.jpg": "", "l.csv": "a.jpg,0,0,9,9,cat\n"}),
    "keras-retinanet, blank": ("boxes_csv", {"a.jpg": "", "l.csv": "a.jpg,,,,,\n"}),
    "AutoML": ("automl", {"a.jpg": "", "m.csv": "TRAIN,a.jpg,cat,0,0,,,1,1,,\n"}),
    "AutoML, one label": ("automl", {"a.jpg": "", "m.csv": "TRAIN,a.jpg,cat\n"}),
    "tfrecorder": ("csv", {"m.csv": "split,image_uri,label\nTRAIN,a.jpg,cat\n"}),
    "a table": ("csv", {"a.csv": "filename,width,height\na.jpg,4,4\n"}),
    "boxes without a class": ("csv", {"a.csv": "image,xmin,ymin,xmax,ymax\na,0,0,1,1"}),
    "metadata": ("csv", {"a.jpg": "", "metadata.csv": "file_name,text\na.jpg,x\n"}),
    "metadata with a long row": (
        "jsonl",
        {"a.jpg": "", "metadata.jsonl": f'{{"t": "{70_000 * "x"}", "file_name": "a"}}'},
    ),
    "metadata in UTF-16": (
        "csv",
        {"a.jpg": "", "metadata.csv": "file_name,text\na.jpg,x\n"},
    ),
    "metadata of cameras": (
        "images",
        {"cat/a.jpg": "", "dog/b.jpg": "", "metadata.csv": "camera,year\nx,1999\n"},
    ),
    "image folder and mask folder": ("pairs", {"images/a.jpg": "", "masks/a.png": ""}),
    "masks beside images": ("pairs", {"a.jpg": "", "a_mask.png": ""}),
    "masks of VOC alone": (
        "pairs",
        {"JPEGImages/a.jpg": "", "SegmentationClass/a.png": ""},
    ),
    "sounds": ("files", {"cat/a.wav": "x", "dog/b.mp3": "x"}),
    "class folders": ("images", {"cat/a.jpg": "", "dog/b.jpg": ""}),
    "mask and no_mask": ("images", {"mask/a.jpg": "", "no_mask/a.jpg": ""}),
    "captions": ("images", {"x/a.jpg": "", "x/a.txt": "A cat.\n", "x/b.jpg": ""}),
    "captions of numbers": ("images", {"x/a.jpg": "", "x/a.txt": "1 2 3 4\n"}),
    "KITTI": ("images", {"image_2/a.png": "", "label_2/a.txt": "Car 0 0 0 1 1 2 2\n"}),
    "other stems": ("images", {"images_a/a.jpg": "", "labels/b.txt": BOX}),
    "texts of classes": ("images", {"c/a.jpg": "", "c/classes.txt": "cat\n"}),
    "another YAML": ("images", {"c/a.jpg": "", "conf.yaml": "names: [a]\nepochs: 3\n"}),
    "masks of YOLO": (
        "pairs",
        {
            "images/a.jpg": "",
            "labels/a.txt": BOX,
            "masks/a.png": "",
            "data.yaml": f"{YAML}masks_dir: masks\n",
        },
    ),
    "other JSON": ("images", {"c/a.jpg": "", "c/a.json": '{"shapes": 3}'}),
    "JSON of flags": ("images", {"c/a.jpg": "", "a.json": '{"flags": {"images": []}}'}),
    "JSON of texts": ("images", {"c/a.jpg": "", "a.json": '{"info": {"year": 1}}'}),
    "JSON of no lists": (
        "images",
        {"c/a.jpg": "", "a.json": '{"images": 3, "annotations": "none"}'},
    ),
    "JSON of a list": ("images", {"c/a.jpg": "", "a.json": '[{"images": []}]'}),
}


def write(root: Folder, texts: Mapping[str, str], encoding: str = "utf-8") -> Folder:
    for path, text in texts.items():
        if path.endswith((".jpg", ".png")):
            write_image(root / path, (40, 20))
            continue
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding)
    return root


@pytest.mark.parametrize("name", SAMPLES)
def test_each_layout_against_each_recogniser(name: str, tmp_path: Folder) -> None:
    """One format takes a layout, and its recogniser is the only one that does."""
    expected, texts = SAMPLES[name]
    root = write(tmp_path, texts, "utf-16" if "UTF-16" in name else "utf-8")
    spec = make_spec({"source": str(root), "output": "-"})
    inputs = find_inputs(spec, "folder")
    inputs = with_masks(spec, inputs) if inputs.format == "images" else inputs
    assert inputs.format == expected
    files = [(entry.path, entry.size) for entry in storage(str(root)).list_tree()]
    taken = [f for f in DETECTION if FORMATS[f].recognised(files, head_in(str(root)))]
    assert taken == [expected][: expected in DETECTION]
    images = [e for e in storage(str(root)).list_tree() if is_image_name(e.path)]
    layout = find_layout(FileList.of(images, by_path=True))
    assert (layout is not None) is (expected == "pairs")


def test_other_sources_beside_the_one_that_is_read(tmp_path: Folder) -> None:
    """Notes count archives and sounds that are skipped, and show one of each."""
    root = write(
        tmp_path, {"cat/a.jpg": "", "cat/a.mp3": "x", "b.zip": "", "c.tar": ""}
    )
    spec = make_spec({"source": str(root), "output": "-"})
    notes = find_inputs(spec, "folder").notes
    assert [note.partition(" skipped")[0] for note in notes] == [
        "2 archives",
        "1 audio file",
    ]


@pytest.mark.parametrize(
    "annotation",
    [
        {"instances.json": COCO.replace("[]", '[{"id": 1, "file_name": "a.jpg"}]', 1)},
        {"a.json": LABELME},
        {"x.xml": VOC},
        {"boxes.csv": CSV},
    ],
)
def test_images_that_no_annotation_names(
    annotation: Mapping[str, str], tmp_path: Folder
) -> None:
    """A note counts them and shows the first; masks of others are none of them."""
    images = dict.fromkeys(("a.jpg", "SegmentationClass/a.png"), "")
    root = write(tmp_path, {**images, **annotation})
    assert not any(".jpg" in note for note in planned(root).notes)
    write(root, dict.fromkeys(("b.jpg", "c.jpg"), ""))
    (note,) = [note for note in planned(root).notes if ".jpg" in note]
    assert note.startswith("2 images")
    assert "'b.jpg'" in note


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            {"images/a.jpg": "", "labels/a.txt": "0 1 2 3\n", "data.yaml": "names: [a"},
            "YOLO",
        ),
        (
            {"x/a.jpg": "", "x/a.txt": "0 .5 .5 .2\n", "x/data.yaml": "names: [a: {"},
            "YOLO",
        ),
        ({"images/a.jpg": "", "images/b.jpg": ""}, "--unlabelled"),
        ({"train/obj_train_data/a.jpg": "", "train/JPEGImages/b.jpg": ""}, "--format"),
        ({**SAMPLES["captions"][1], "x/b.txt": "A dog.\n"}, "captions"),
    ],
)
def test_what_is_refused(texts: Mapping[str, str], said: str, tmp_path: Folder) -> None:
    """Parts of datasets whose annotations are not read are no classes."""
    with pytest.raises(InputError, match=said):
        planned(write(tmp_path, texts))


_CASES = 30
_TOKENS: Mapping[str, tuple[bytes, ...]] = {
    "yolo": (b"nan", b"1e999", b"-", b" ", b"\n", b"9" * 400, b"\0", b"&a [*a]", b"{"),
    "boxes_csv": (b",", b'"', b"\n", b"nan", b"1e999", b"9" * 400, b"a.jpg", b";"),
    "labelme": (b"null", b"[", b"{}", b"1e999", b"NaN", b'"', b"9" * 5000, b"\\ud800"),
}


@pytest.mark.parametrize(
    ("layout", "path"),
    [
        ("yolo", "data.yaml"),
        ("yolo", "train/labels/a.txt"),
        ("boxes_csv", "train_labels.csv"),
        ("labelme", "train/images/a.json"),
    ],
)
def test_damage(layout: str, path: str, tmp_path: Folder) -> None:
    """The account holds, and a message fits; nothing else is raised."""
    root = write_layout(tmp_path / "in", layout)
    good = (root / path).read_bytes()
    assert len(read_planned(root, format=layout).rows) == 3
    outcomes: Counter[str] = Counter()
    sizes = [1]
    for case in range(_CASES):
        rng = random.Random(f"{path} {case}")
        data = good[: rng.randrange(len(good))]
        if case % 3:
            data = mutated(good, rng, _TOKENS[layout])
        (root / path).write_bytes(data)
        try:
            with at_most():
                found = read_planned(root, format=layout)
        except BeamTFRecordError as error:
            outcomes["error"] += 1
            sizes.append(len(str(error).encode()))
        except BaseException as error:
            error.add_note(f"case {case}: {data!r:.2000}")
            raise
        else:
            outcomes["rejected" if found.rejections else "clean"] += 1
    assert 0 < min(sizes) <= max(sizes) <= MAX_MESSAGE_BYTES
    assert outcomes["clean"] + outcomes["rejected"] > _CASES // 10, outcomes

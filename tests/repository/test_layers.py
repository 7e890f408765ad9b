"""The layers: who may import whom, who may import Beam, and what is public."""

import ast
import importlib
import re
from collections.abc import Iterator

from tests.support.product_code import MODULES, tree

# Folder -> the folders that it may import beside itself. A module at the top of its
# package may have its own row; the row `beam_pipeline` is for the rest: the front door.
LIBRARY = {
    "transforms": "lazy_names errors core core.example core.rows codec stages tfrecord",
    "transforms.lazy_names": "",
    "transforms.errors": "",
    "transforms.storage": "errors core",
    "transforms.core": "errors",
    "transforms.core.tfrecord": "errors core",
    "transforms.core.example": "errors core core.tfrecord",
    "transforms.core.image": "errors core",
    "transforms.core.rows": "errors core core.example core.image",
    "transforms.core.infer": "errors core core.image core.rows",
    "transforms.core.placing": "errors core core.rows",
    "transforms.formats": (
        "errors storage core core.image core.rows core.placing core.tfrecord"
    ),
    "transforms.formats.columnar": "errors storage core core.image core.rows formats",
    "transforms.formats.csv": "errors storage core core.rows core.infer formats",
    "transforms.formats.detection": (
        "errors storage core core.image core.placing formats formats.csv"
    ),
    "transforms.formats.json_lines": (
        "errors storage core core.rows formats formats.columnar"
    ),
    "transforms.formats.archive": (
        "errors storage core core.image formats formats.json_lines"
    ),
    "transforms.formats.tfrecord_files": (
        "errors storage core core.example core.infer core.rows core.tfrecord sidecars "
        "formats formats.columnar"
    ),
    "transforms.sidecars": "errors core",
    "transforms.work": ("errors storage core core.example core.placing core.tfrecord"),
    "transforms.shards": (
        "errors storage core core.example core.image core.placing core.rows "
        "core.tfrecord work"
    ),
    "transforms.publishing": ("errors storage core core.placing sidecars work"),
    "transforms.rows": (
        "errors core core.example core.infer core.placing core.rows formats "
        "formats.columnar formats.tfrecord_files"
    ),
    "transforms.codec": (
        "errors core core.example core.infer core.rows core.tfrecord "
        "formats.tfrecord_files"
    ),
    "transforms.reading": (
        "errors storage core core.tfrecord core.example core.rows core.image "
        "formats.tfrecord_files"
    ),
    "transforms.stages": (
        "errors storage core core.placing formats sidecars work shards "
        "rows codec publishing"
    ),
    "transforms.tfrecord": (
        "lazy_names errors storage core core.placing core.tfrecord work publishing"
    ),
}
# The program may import all of the library, too.
PROGRAM = {
    "beam_pipeline.version": "",
    "beam_pipeline.terminal": "",
    "beam_pipeline.beam_internals": "",
    "beam_pipeline.engines": "version beam_internals settings",
    "beam_pipeline.settings": "",
    "beam_pipeline.python_data": "",
    "beam_pipeline.planning": "version settings terminal",
    "beam_pipeline.graph": "version settings planning",
    "beam_pipeline.running": (
        "version settings terminal beam_internals engines planning graph"
    ),
    "beam_pipeline.own_pipelines": (
        "version settings beam_internals engines planning datasets graph"
    ),
    "beam_pipeline.datasets": "settings planning",
    "beam_pipeline.copies": "version terminal datasets",
    "beam_pipeline.reader_programs": "terminal datasets",
    "beam_pipeline.page": "terminal datasets",
    "beam_pipeline.commands": (
        "version settings terminal beam_internals engines planning running "
        "datasets reader_programs page copies"
    ),
    "beam_pipeline": (
        "version settings terminal beam_internals planning python_data running "
        "own_pipelines datasets reader_programs commands"
    ),
}
# The rooms that wire Beam or run it; all else is plain functions.
BEAM = {
    "transforms.stages",
    "transforms.tfrecord",
    "beam_pipeline.graph",
    "beam_pipeline.beam_internals",
    "beam_pipeline.running",
    "beam_pipeline.engines",
    "beam_pipeline.own_pipelines",
}
ALLOWED = {
    **{
        room: {f"transforms.{name}" for name in names.split()} | {room}
        for room, names in LIBRARY.items()
    },
    **{
        room: {f"beam_pipeline.{name}" for name in names.split()}
        | {room}
        | LIBRARY.keys()
        for room, names in PROGRAM.items()
    },
    "beam_tfrecord": {"beam_tfrecord", "beam_pipeline", *LIBRARY},
}


def room(module: str) -> str:
    """Returns the folder of a module; the module itself if it has a row of its own."""
    if module in ALLOWED:
        return module
    folder = module.rpartition(".")[0]
    # What is at the top of `transforms` has a row; `beam_pipeline` has one for all.
    return folder or module


# What stages are given, and what the last one adds up and says; no stages themselves.
BESIDE = {
    f"transforms.stages.{name}" for name in ("job_plan", "account", "limits", "remarks")
}
STAGES = frozenset(m for m in MODULES if m.startswith("transforms.stages."))


def imports(module: str) -> Iterator[tuple[str, str]]:
    """Yields (module, name) for every import, anywhere in the file."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in MODULES:
                    yield inner, ""
                else:
                    yield str(node.module), alias.name


def own_imports(module: str) -> set[str]:
    return {name for name, _ in imports(module) if name in MODULES}


def imports_beam(module: str) -> bool:
    return any(name.partition(".")[0] == "apache_beam" for name, _ in imports(module))


def names_used(module: str) -> Iterator[tuple[str, str]]:
    """Yields (module of ours, name in it) for names imported and for attributes."""
    bound = {}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in MODULES:
                    bound[alias.asname or alias.name] = inner
                elif node.module in MODULES and alias.name != "*":
                    yield str(node.module), alias.name
    for node in ast.walk(tree(module)):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in bound
        ):
            yield bound[node.value.id], node.attr


def test_walk_sees_the_program() -> None:
    """The walk finds the modules and their imports, or these tests would be idle."""
    assert {"transforms.core.placing.sharding", "transforms"} <= set(MODULES)
    assert imports_beam("transforms.stages.place")
    assert "transforms.core.model" in own_imports("transforms.stages.place")
    assert ("transforms.core.placing.sharding", "shard_of_keys") in names_used(
        "transforms.stages.place"
    )


def test_imports_point_one_way() -> None:
    """A module imports from its own layer where that is allowed, and from below."""
    assert not {
        f"{module} imports {name}"
        for module in MODULES
        for name in own_imports(module)
        if room(name) not in ALLOWED[room(module)]
    }


def test_stages_never_import_one_another() -> None:
    """Only `graph.py` joins the stages; what they share is their plan."""
    assert BESIDE <= STAGES
    for stage in sorted(STAGES):
        assert not own_imports(stage) & (STAGES - BESIDE), stage


def test_no_cycles() -> None:
    """No module imports itself by way of others."""
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module not in done:
            for name in sorted(own_imports(module)):
                visit(name, (*path, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())


def test_no_tensorflow() -> None:
    """TensorFlow and its family are readers that the tests use, nothing more."""
    roots = {name.partition(".")[0] for m in MODULES for name, _ in imports(m)}
    assert "pyarrow" in roots
    assert not roots & {
        "tensorflow",
        "tensorflow_datasets",
        "tensorflow_metadata",
        "tfx_bsl",
    }


def test_jinja_is_imported_by_templates_only() -> None:
    """Every other command works, and starts, without it."""
    found = {
        module
        for module in MODULES
        if any(name.partition(".")[0] == "jinja2" for name, _ in imports(module))
    }
    assert found == {
        "beam_pipeline.page.build",
        "beam_pipeline.reader_programs.programs",
    }


def test_beam_is_imported_where_it_is_wired_only() -> None:
    """Only stages, their parameters, and code that builds and runs them use Beam."""
    found = {module for module in MODULES if imports_beam(module)}
    assert {room(module) for module in found} == BEAM


# What Beam says nothing about in its documentation, and changes between releases.
BEAM_INTERNALS = re.compile(
    r"apache_beam\.(runners|portability|internal|transforms\.(core|environments)|"
    r"utils(?!\.windowed_value))\b|apache_beam\.(\w+\.)*_(?!_)"
)


def test_internals_of_beam_are_behind_one_folder() -> None:
    """Another release of Beam breaks `beam_internals` and nothing else."""
    users = {
        module
        for module in MODULES
        for place, name in imports(module)
        if BEAM_INTERNALS.match(f"{place}.{name}")
    }
    assert {room(module) for module in users} == {"beam_pipeline.beam_internals"}
    for module in filter(imports_beam, MODULES):
        if module not in users:
            text = ast.unparse(tree(module)).replace("beam.", "apache_beam.")
            assert not BEAM_INTERNALS.search(text), module


def test_annotations_are_real_where_beam_reads_them() -> None:
    """No postponed or quoted annotation of an argument: Beam would skip its checks."""
    for module in filter(imports_beam, MODULES):
        assert ("__future__", "annotations") not in set(imports(module))
        assert not any(name == "TYPE_CHECKING" for _, name in imports(module))
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.FunctionDef) and node.name in ("expand", "process"):
                arguments = [arg.annotation for arg in node.args.args[1:]]
                for annotation in (*arguments, node.returns):
                    assert annotation is not None, f"{node.name} of {module}"
                    for part in ast.walk(annotation):
                        quoted = (
                            isinstance(part, ast.Constant) and part.value is not None
                        )
                        assert not quoted, f"{node.name} of {module}"


def test_public_names_exist() -> None:
    """`__all__` names nothing twice and nothing that is not there."""
    for name in MODULES:
        if not name.endswith("__main__"):
            module = importlib.import_module(name)
            names = list(getattr(module, "__all__", ()))
            assert len(names) == len(set(names)), name
            assert not [n for n in names if not hasattr(module, n)], name


def test_what_others_use_is_public() -> None:
    """No module of the program uses a name of another with an underscore in front."""
    private = {
        f"{module}.{name}, used by {user}"
        for user in MODULES
        for module, name in names_used(user)
        if name.startswith("_") and not name.startswith("__")
    }
    assert not private

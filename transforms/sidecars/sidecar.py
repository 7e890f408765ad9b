"""The interface of a sidecar: files beside the shards, rendered from the manifest."""

import dataclasses
from collections.abc import Callable, Mapping

from transforms.core.manifest import Manifest


@dataclasses.dataclass(frozen=True, slots=True)
class Rendered:
    """The files of a sidecar, and notes for the user.

    Attributes:
      files: file name -> content; empty if the dataset needs none.
      notes: sentences, each about something that readers of the files will not see.
      derived: files that the dataset's digest does not cover.
    """

    files: Mapping[str, bytes]
    notes: tuple[str, ...] = ()
    derived: Mapping[str, bytes] = dataclasses.field(default_factory=dict)

    @property
    def all_files(self) -> dict[str, bytes]:
        """The files and the derived ones."""
        return {**self.files, **self.derived}


@dataclasses.dataclass(frozen=True, slots=True)
class Sidecar:
    """One kind of files beside the shards.

    Attributes:
      render: takes the manifest, without its `files`, and the label map (class id ->
        name; empty for none); returns the files.
      point_to: takes the name of a folder and the manifest of the dataset in it;
        returns files for the directory above, so that readers of the directory find
        the shards. None where readers need no such files.
    """

    render: Callable[[Manifest, Mapping[int, str]], Rendered]
    point_to: Callable[[str, Manifest], Mapping[str, bytes]] | None = None

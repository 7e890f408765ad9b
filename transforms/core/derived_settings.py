"""Which derived files a dataset gets."""

import dataclasses
from typing import Literal

__all__ = ["CatalogueChoice", "DerivedSettings", "IndexChoice"]

IndexChoice = Literal["auto", "text", "none"]
CatalogueChoice = Literal["auto", "scalars", "full", "none"]


@dataclasses.dataclass(frozen=True, slots=True)
class DerivedSettings:
    """Which files are written beside the shards, for readers that look records up.

        >>> made = DerivedSettings.of("auto", "auto", compression="gzip", images=True)
        >>> made.index, made.text_index, made.catalogue
        (False, False, True)

    Attributes:
      index: `index/SHARD.u64` for each shard.
      text_index: `index/SHARD.idx`, too.
      catalogue: the parts of `catalogue/`.
      texts: whether texts are columns of the catalogue.
      key: the feature that identifies rows, for the column `_key`; empty for none.
      notes: what a person should know of files that are not written.
    """

    index: bool = False
    text_index: bool = False
    catalogue: bool = False
    texts: bool = False
    key: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        index: IndexChoice,
        catalogue: CatalogueChoice,
        *,
        compression: str,
        images: bool,
        key: str = "",
    ) -> "DerivedSettings":
        """Returns what the settings of a job come to.

        Args:
          index: "auto" is as text, too, where there are images: DALI needs it.
          catalogue: "auto" is "scalars" where there are images, else "none".
          compression: of the shards. A record of a compressed file cannot be looked
            up.
          images: whether records have images.
          key: the feature that identifies rows; empty for none.
        """
        if catalogue == "auto":
            catalogue = "scalars" if images else "none"
        notes: tuple[str, ...] = ()
        if compression != "none":
            if index == "text":
                notes = ("shards that are compressed have no index, also not as text",)
            index = "none"
        return cls(
            index=index != "none",
            text_index=index == "text" or (index == "auto" and images),
            catalogue=catalogue != "none",
            texts=catalogue == "full",
            key=key if catalogue != "none" else "",
            notes=notes,
        )

    @property
    def are_any(self) -> bool:
        """Whether there is any such file."""
        return self.index or self.catalogue

    @property
    def files_per_shard(self) -> int:
        """How many files a shard is written as: itself and its indexes."""
        return 1 + self.index + self.text_index

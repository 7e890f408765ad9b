"""Which derived files a dataset gets."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class DerivedSettings:
    """Which files are written beside the shards, for readers that look records up.

        >>> made = DerivedSettings.of(True, None, compression="gzip", images=True)
        >>> made.index, made.text_index, made.catalogue
        (False, False, True)

    Attributes:
      index: `index/SHARD.u64` for each shard.
      text_index: `index/SHARD.idx`, too.
      catalogue: the parts of `catalogue/`.
      key: the feature that identifies rows, for the column `_key`; empty for none.
    """

    index: bool = False
    text_index: bool = False
    catalogue: bool = False
    key: str = ""

    @classmethod
    def of(
        cls,
        index: bool,
        catalogue: bool | None,
        *,
        compression: str,
        images: bool,
        key: str = "",
    ) -> "DerivedSettings":
        """Returns what the settings of a job come to.

        Args:
          index: where there are images, as text, too: DALI needs it.
          catalogue: None for where there are images.
          compression: of the shards. A record of a compressed file cannot be looked
            up.
          images: whether records have images.
          key: the feature that identifies rows; empty for none.
        """
        if catalogue is None:
            catalogue = images
        is_plain = compression == "none"
        return cls(
            index=index and is_plain,
            text_index=index and images and is_plain,
            catalogue=catalogue,
            key=key if catalogue else "",
        )

    @property
    def are_any(self) -> bool:
        """Whether there is any such file."""
        return self.index or self.catalogue

    @property
    def files_per_shard(self) -> int:
        """How many files a shard is written as: itself and its indexes."""
        return 1 + self.index + self.text_index

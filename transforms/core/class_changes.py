"""Which classes get other names, and which records therefore other class ids.

A new name that is a class already: the records get the id of that class. One that is
not: it takes the id of the first of its old classes, and records of the others get that
id. No other class changes its id, so that models which know the ids stay right: a class
whose records have all gone to another stays in the list, without records.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from transforms.errors import SpecError, nearest


@dataclasses.dataclass(frozen=True, slots=True)
class ClassChanges:
    """What becomes of the classes of a feature.

    Attributes:
      names: the new class names, in the order of their ids.
      ids: class id -> the new one, of those whose records change.
    """

    names: tuple[str, ...]
    ids: Mapping[int, int]


def class_changes(names: Sequence[str], wanted: Mapping[str, str]) -> ClassChanges:
    """Returns what a new name for some classes means.

        >>> class_changes(["cat", "dog", "hat"], {"dog": "hound"})
        ClassChanges(names=('cat', 'hound', 'hat'), ids={})
        >>> class_changes(["cat", "dog", "hat"], {"dog": "cat"})
        ClassChanges(names=('cat', 'dog', 'hat'), ids={1: 0})

    All changes happen at once, so two classes can exchange their names.

    Args:
      names: of the classes, in the order of their ids.
      wanted: old name -> new name.

    Raises:
      SpecError: an old name is no class, or a new one is empty.
    """
    known = {name: number for number, name in enumerate(names)}
    for old, new in wanted.items():
        if old not in known:
            raise SpecError(
                f"Classes that get new names must be classes of the dataset; there is "
                f"no {old!r}{nearest(old, known)}."
            )
        if not new or new != new.strip():
            raise SpecError(
                f"A class name must have characters, and no white space at its ends; "
                f"{old!r} is to be called {new!r}."
            )
    found = [*names]
    places = dict(known)
    for old, new in wanted.items():
        if new in places:
            continue
        # The id of a class to which others go stays that class's.
        if old in wanted.values():
            places[new] = len(found)
            found.append(new)
        else:
            places[new] = known[old]
            found[known[old]] = new
    ids = {known[old]: places[new] for old, new in wanted.items()}
    return ClassChanges(
        tuple(found), {old: new for old, new in sorted(ids.items()) if old != new}
    )

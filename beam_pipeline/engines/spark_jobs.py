"""Whether a Spark answers."""

import socket

from transforms.errors import UsageError

# A master that takes longer to answer is treated as unreachable.
_ASK_SECONDS = 5.0


def reach_master(master: str) -> None:
    """Refuses a standalone master at which nobody answers; Spark tries for a minute.

    Args:
      master: as Spark writes it: `spark://host:port`, with more of them behind commas
        where one stands in for another. Other kinds are not asked.

    Raises:
      UsageError: none answers.
    """
    if not master.startswith("spark://"):
        return
    hosts = master.removeprefix("spark://").split(",")
    found = [_silence(*each.rpartition(":")[::2]) for each in hosts]
    if "" in found:
        return
    raise UsageError(
        f"There must be a Spark at {master!r}; found none: {found[-1]}. Start it, or "
        f"name another with --spark-master; in a checkout, 'scripts/cluster spark up' "
        f"starts one for trials."
    )


def _silence(host: str, port: str) -> str:
    """Returns why nobody answers at an address, "" where somebody does."""
    if not port.isdigit():
        return "its address must end with a port, as in :7077"
    try:
        address = host.strip("[]"), int(port)
        with socket.create_connection(address, timeout=_ASK_SECONDS):
            return ""
    except (OSError, OverflowError) as error:
        return str(error)

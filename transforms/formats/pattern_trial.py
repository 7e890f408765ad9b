"""Try a user's regular expression with a time limit before it is used.

A pattern like `(a+)+$` may need longer for one name than anybody waits, and Python
cannot interrupt it in a thread. So it is tried in a process of its own, on the texts
that it will be used on, before this process uses it: names of files when the job is
planned, values of a column, and names of members that are not listed, in each block.
"""

import json
import resource
import signal
import subprocess
from collections.abc import Iterable

from transforms.core.interpreter import python_command
from transforms.errors import SpecError

__all__ = ["try_pattern"]

_SECONDS = 2
# That time is for this many texts: each of millions may take its time.
_TEXTS = 1000
# Processor time is what counts, on a busy machine too. The line that was printed last
# is the number of the first text that was not done.
_CHILD = """
import json, math, re, resource, sys, time
pattern, texts, seconds, step = json.load(sys.stdin)
search = re.compile(pattern).search
hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
for start in range(0, len(texts), step):
    limit = math.ceil(time.process_time()) + seconds
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
    print(start, flush=True)
    for text in texts[start : start + step]:
        search(text)
print("done", flush=True)
"""


def try_pattern(feature: str, pattern: str, texts: Iterable[str | None]) -> None:
    """Searches a pattern in texts as a run will do, in a process that may be ended.

    Args:
      feature: whose pattern it is, for the message.
      pattern: a regular expression that compiles.
      texts: what it will be used on; nulls are left out.

    Raises:
      SpecError: it needs more than two seconds of processor time for some of them.
    """
    distinct = list(dict.fromkeys(text for text in texts if text is not None))
    if not distinct:
        return
    job = json.dumps([pattern, distinct, _SECONDS, _TEXTS])
    try:
        done = subprocess.run(
            [*python_command(), "-I", "-S", "-c", _CHILD],
            input=job,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
    except OSError:
        # Without an interpreter there is no trial.
        return
    *_, last = ["", *done.stdout.split()]
    if last.isdigit() and _ran_out_of_time(done.returncode):
        text = distinct[int(last)]
        raise SpecError(
            f"The path pattern of feature {feature!r} must answer at once; "
            f"{pattern!r:.200} takes more than {_SECONDS} seconds for names such as "
            f"{text!r:.200}. Write it without nested repetitions, as in ^([^/]+)/."
        )


def _ran_out_of_time(code: int) -> bool:
    """Whether a child's time was up; what kills it otherwise says nothing of a name."""
    if code == -signal.SIGKILL:
        return resource.getrlimit(resource.RLIMIT_CPU)[1] != resource.RLIM_INFINITY
    return code == -signal.SIGXCPU

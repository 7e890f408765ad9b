"""Machines of their own on this one: disks, processes, a host name and a network.

Each is a set of Linux namespaces that its first process holds. That process ends when
this one does, however that happens, and takes with it all that runs in the machine, its
mounts and its network; nothing is left to clear up.

    this machine                10.77.N.1   the submitter, object stores
       |
    a network of machines       10.77.N.2   engine and workers, as containers of one pod
                                127.0.0.1   between them
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence

__all__ = ["Machine", "Network", "connect", "kill", "stop", "unable"]

Folder = pathlib.Path

# Where users and programs of a machine keep files; on another one they are empty.
_EMPTY = ("/root", "/tmp", "/var/tmp", "/home", "/dev/shm", "/opt", "/srv", "/run")
_READY_SECONDS = 30
_TOOLS = ("unshare", "nsenter", "setpriv", "ip", "mount", "bash")
# Folders come from outside through a place that all machines have: their own are
# covered first. In the end nothing is writable but what was covered.
_FIRST = """
set -eu
hostname "$1"
mount -t tmpfs tmpfs /mnt
number=0
for bind in $BINDS; do
    number=$((number + 1))
    IFS=: read -r here there mode <<<"$bind"
    if [ -d "$here" ]; then mkdir "/mnt/$number"; else touch "/mnt/$number"; fi
    mount --bind "$here" "/mnt/$number"
done
for folder in $COVERED; do
    mkdir -p "$folder"
    mount -t tmpfs tmpfs "$folder"
done
number=0
for bind in $BINDS; do
    number=$((number + 1))
    IFS=: read -r here there mode <<<"$bind"
    mkdir -p "$(dirname "$there")"
    if [ -d "/mnt/$number" ]; then mkdir -p "$there"; else touch "$there"; fi
    mount --move "/mnt/$number" "$there"
    mount -o "remount,bind,$mode" "$there"
done
umount /mnt
rm -rf /run/mount
mount -o remount,bind,ro /
mount -t proc proc /proc
mkdir -p /tmp/home
ip link set lo up
# Ports of pools that the kernel could have given to a connection.
echo 50000-50003 >/proc/sys/net/ipv4/ip_local_reserved_ports
echo ready
# As the first process it ends orphans' lives, and with its input its own.
read -r _ || true
"""


def unable() -> str:
    """Returns why there can be no machines here; "" if there can."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"namespaces need {' and '.join(missing)} on the PATH"
    if os.geteuid():
        return "machines of their own are namespaces, for which root is needed"
    tried = subprocess.run(
        [
            *("unshare", "--mount", "--uts", "--pid", "--net", "--fork"),
            *("--mount-proc", "ip", "link", "set", "lo", "up"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"namespaces are not permitted: {tried.stderr}" if tried.returncode else ""


class Machine:
    """A machine, and what runs on it.

    Attributes:
      name: of the host.
      pid: its first process, as this machine sees it.
    """

    def __init__(
        self,
        name: str,
        *,
        hidden: Sequence[Folder] = (),
        given: Mapping[str, Folder] = {},
        kept: Mapping[str, Folder] = {},
        beside: "Machine | None" = None,
    ) -> None:
        """Starts it.

        Args:
          name: of the host.
          hidden: folders of this machine that it has empty, beside the usual ones.
          given: what it sees of this machine, read-only, by the path that it has there.
          kept: folders of this machine that it may write, likewise.
          beside: another machine, whose network it shares; None for one of its own.
        """
        self.name = name
        command = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child"]
        if beside is None:
            command.append("--net")
        else:
            command = ["nsenter", f"--net=/proc/{beside.pid}/ns/net", *command]
        self._covered = [Folder(each) for each in _EMPTY if Folder(each).is_dir()]
        for folder in hidden:
            if not any(folder.is_relative_to(each) for each in self._covered):
                self._covered.append(folder)
        self._holder = subprocess.Popen(
            [*command, "bash", "-c", _FIRST, "bash", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                "PATH": os.environ["PATH"],
                "COVERED": " ".join(map(str, self._covered)),
                "BINDS": " ".join(
                    [f"{here}:{there}:ro" for there, here in given.items()]
                    + [f"{here}:{there}:rw" for there, here in kept.items()]
                ),
            },
        )
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        if self._holder.stdout.readline() != "ready\n":
            said = self._holder.stderr.read()
            self.end()
            raise AssertionError(f"the machine {name} does not start: {said}")
        self.pid: int = _children(self._holder.pid)[0]

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], log: Folder
    ) -> "subprocess.Popen[bytes]":
        """Starts a program with exactly this environment; `stop` ends it."""
        with log.open("ab") as output:
            return subprocess.Popen(
                self.inside(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
            )

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], seconds: int = 300
    ) -> "subprocess.CompletedProcess[str]":
        """Runs a program to its end."""
        return subprocess.run(
            self.inside(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=dict(environment),
            timeout=seconds,
            check=False,
        )

    def shell(self, command: str) -> str:
        """Runs a command of the shell; returns what it prints."""
        done = self.run(["bash", "-c", command], {"PATH": os.environ["PATH"]})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def files(self) -> list[str]:
        """Returns the files on its disks: all that anyone has written there."""
        folders = shlex.join(map(str, self._covered))
        return sorted(self.shell(f"find {folders} -xdev -type f").splitlines())

    def end(self) -> None:
        """Ends it, and all that runs on it."""
        assert self._holder.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._holder.stdin.close()
        try:
            self._holder.wait(_READY_SECONDS)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.wait()
        for pipe in (self._holder.stdout, self._holder.stderr):
            assert pipe is not None
            pipe.close()

    def inside(self, command: Sequence[str] = ()) -> list[str]:
        """Returns the command that runs one on this machine."""
        # By its path, since the programs' own PATH is another.
        nsenter = shutil.which("nsenter") or ""
        spaces = ["--mount", "--uts", "--net", "--pid", "--wdns=/tmp"]
        return [nsenter, f"--target={self.pid}", *spaces, *command]


@dataclasses.dataclass(frozen=True)
class Network:
    """A wire between this machine and others, which have one address together.

    Attributes:
      here: address of this machine on it.
      there: address of the others.
    """

    here: str
    there: str


def connect(machine: Machine) -> Network:
    """Lays a wire to a machine; it ends with the machine."""
    number = next(n for n in range(1, 255) if f"10.77.{n}.1" not in _addresses())
    ends = Network(f"10.77.{number}.1", f"10.77.{number}.2")
    name = f"elsewhere{number}"
    _ip(f"link add {name} type veth peer name eth0 netns {machine.pid}")
    _ip(f"addr add {ends.here}/30 dev {name}")
    _ip(f"link set {name} up")
    machine.shell(f"ip addr add {ends.there}/30 dev eth0; ip link set eth0 up")
    return ends


def _ip(arguments: str) -> str:
    done = subprocess.run(
        ["ip", *arguments.split()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"ip {arguments}: {done.stderr}"
    return done.stdout


def _addresses() -> set[str]:
    """Returns all addresses of this machine."""
    found = json.loads(_ip("-json addr show"))
    return {each["local"] for link in found for each in link["addr_info"]}


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Ends a program on a machine, by SIGTERM."""
    for pid in _children(process.pid):
        _signal(pid, signal.SIGTERM)
    try:
        process.wait(_READY_SECONDS)
    except subprocess.TimeoutExpired:
        kill(process)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kills a program on a machine, and all that it has started."""
    for pid in _family(process.pid):
        _signal(pid, signal.SIGKILL)
    process.wait()


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _family(pid: int) -> list[int]:
    """Returns a process and all that come from it."""
    return [pid, *(each for child in _children(pid) for each in _family(child))]


def _children(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Folder(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += [int(each) for each in (task / "children").read_text().split()]
    return found

"""`subset`, `merge` and `diff` of datasets in buckets."""

from pathlib import Path

from tests.storage.conftest import Server
from tests.storage.fault_proxy import FaultProxy
from tests.storage.program import Program, assert_same, assert_whole, manifest_at
from tests.support.outputs import contents


def test_subsets(server: Server, local_measures: Path, tmp_path: Path) -> None:
    """To a bucket, from one, inside one and in place: the same bytes as locally."""
    program = Program(server, tmp_path)
    choice = ("--where", "animal != 'cat'", "--split", "train")
    program.run("subset", local_measures, tmp_path / "here", *choice)
    server.write_tree("set", local_measures)
    source = f"{server.url}/set"
    program.run("subset", source, tmp_path / "fetched", *choice)
    assert contents(tmp_path / "fetched") == contents(tmp_path / "here")
    program.run("subset", local_measures, f"{server.url}/sent", *choice)
    assert_same(server, "sent", tmp_path / "here")
    program.run("subset", source, f"{server.url}/inside", *choice)
    assert_same(server, "inside", tmp_path / "here")
    refused = program.run("subset", source, f"{server.url}/inside", code=2)
    assert "--overwrite" in refused.err
    program.run("subset", source, source, *choice, "--overwrite")
    assert_same(server, "set", tmp_path / "here")


def test_the_store_copies_shards(
    server: Server, local_measures: Path, tmp_path: Path
) -> None:
    """A subset reads shards to count what they hold, and sends none that it keeps."""
    server.write_tree("set", local_measures)
    source, out = f"{server.url}/set", f"{server.url}/out"
    with FaultProxy(server.endpoint) as proxy:
        program = Program(server.through(proxy.endpoint), tmp_path)
        program.run("subset", source, out)
        assert not _shards_sent(proxy)
        program.run("subset", local_measures, f"{server.url}/sent")
        assert _shards_sent(proxy)
    manifest = assert_whole(server, "out")
    before = manifest_at(server, "set")
    shards = [[s.crc32c for s in each.shards] for each in before.splits]
    assert [[s.crc32c for s in each.shards] for each in manifest.splits] == shards
    program = Program(server, tmp_path)
    program.run("merge", source, out, f"{server.url}/both")
    assert assert_whole(server, "both").records == 2 * before.records
    program.run("diff", source, out)
    program.run("diff", source, local_measures)
    train = f"{server.url}/train"
    program.run("subset", source, train, "--split", "train")
    gone = sum(split.records for split in before.splits if split.name != "train")
    done = program.run("diff", source, train, code=1)
    assert f"{gone}  in the first alone" in done.out


def _shards_sent(proxy: FaultProxy) -> list[str]:
    """Returns the requests that put the content of shards."""
    return [
        request.target
        for request in proxy.requests
        if request.method in ("PUT", "POST")
        and "measures-t" in request.target
        and "rewriteTo" not in request.target
    ]

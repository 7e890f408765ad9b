"""Reads HDFS by Arrow in a process of its own, which Java would never leave.

python -m tests.storage.hdfs_client PORT put FILE_OR_FOLDER PATH
python -m tests.storage.hdfs_client PORT get PATH FOLDER
python -m tests.storage.hdfs_client PORT list PATH    prints names, a JSON list
"""

import json
import sys
from pathlib import Path

from pyarrow import fs


def main(port: str, command: str, *arguments: str) -> None:
    """Runs one command."""
    system = fs.HadoopFileSystem("127.0.0.1", int(port))
    if command == "put":
        source, path = arguments
        if Path(source).is_dir():
            fs.copy_files(source, path, destination_filesystem=system)
        else:
            with system.open_output_stream(path) as sink:
                sink.write(Path(source).read_bytes())
    elif command == "get":
        path, folder = arguments
        fs.copy_files(path, folder, source_filesystem=system)
    elif command == "list":
        selector = fs.FileSelector(arguments[0], allow_not_found=True)
        print(json.dumps([each.base_name for each in system.get_file_info(selector)]))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""All that depends on names which Beam may change: what is patched or subclassed.

    loading.py        imports Beam beside planning, without libraries it can spare
    local_runner.py   its local runner, with workers that were started beforehand
    engine_worker.py  `beam-tfrecord-worker`: its worker program, without its container

For each name a test says which of these files another release of Beam breaks.
"""

"""The engines that run a job beside this process: presets, checks, submission.

    presets.py      the engines by name, each with its flags of Beam and its job server
    checks.py       reads Beam's flags; finds job servers; checks what workers see
    flink.py        asks a Flink for its size, its jobs and their errors
    submit.py       starts a job server, submits, cancels
    watch.py        watches any run, also one without an engine, and stops it
    beam_errors.py  finds our own error in what Beam raises
    worker.py       what an engine starts as a worker: `beam-tfrecord-worker`

Nothing but `submit.py` and the worker imports Beam.
"""

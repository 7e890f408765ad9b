"""The engines that run a job beside this process: presets, checks, submission.

    engine.py       what an engine is, where the caller takes part in a run, who starts
                    the workers, and how Beam's own flags are read
    presets.py      the engines by name, each with its flags of Beam, and their job
                    servers
    checks.py       finds a job server; checks that workers see what they need
    masters.py      asks a Flink for its size and its jobs, a Spark whether it is there
    submit.py       starts a job server, submits, cancels
    watch.py        watches any run, also one without an engine, and stops it
    beam_errors.py  finds our own error in what Beam raises
    worker.py       what an engine starts as a worker: `beam-tfrecord-worker`

Nothing but `submit.py` and the worker imports Beam.
"""

"""The engines that run a job beside this process: presets, workers, submission.

    engine.py       what an engine is, what its presets are made from, where the caller
                    takes part in a run, and how Beam's own flags are read
    presets.py      the engines by name, each with its flags of Beam
    job_server.py   what Flink, Spark and Prism share: master, job server, machines
    places.py       finds a job server; checks that its workers see what they need
    workers.py      who starts the workers of a job
    worker_boot.py  what an engine starts as a worker, without a container
    worker_program.py       the command of workers elsewhere: `beam-tfrecord-worker`
    job_watch.py    what workers report, and what the engine says, while a job runs
    engine_words.py what an engine says of a job, or its job server in its output
    submission.py   submits, watches, cancels
    stopping.py     watches any run, also one without an engine, and stops it
    beam_errors.py  finds our own error in what Beam raises
    dataflow_checks.py      what a job there must bring
    dataflow_submission.py  submits there, and packs what its workers install

Nothing but the submissions and the worker imports Beam.
"""

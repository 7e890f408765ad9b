"""The engines that run a job beside this process: presets, checks, submission.

    presets.py  the engines by name, each with its flags of Beam and its job server
    checks.py   reads Beam's flags; asks who answers; checks what workers see
    submit.py   starts a job server, submits, cancels; watches any run and stops it;
                finds our own error in what workers, Beam and engines say

Only `submit.py` and `job_server.py` import Beam.
"""

"""Airflow: converts the rows of each day as a part of one dataset, and checks the part.

The operator comes with `apache-airflow-providers-apache-beam` and also imports
`apache-airflow-providers-google`. It calls the program without a sub-command, with
everything as flags, and fails the task unless the exit code is 0. The program has its
own environment, which the scheduler's variable BEAM_TFRECORD_PYTHON names.

The operator has three peculiarities:

- `False` leaves an option out: write `no_shuffle: True`, not `shuffle: False`.
- A list becomes one flag for each value, as `include` needs it.
- `labels` already means the labels of Google Cloud: name a table of labels in a `spec`.
"""

import datetime
import os

from airflow.providers.apache.beam.operators.beam import BeamRunPythonPipelineOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

PYTHON = os.environ.get("BEAM_TFRECORD_PYTHON", "/opt/beam-tfrecord/bin/python")
DATA = os.environ.get("BEAM_TFRECORD_DATA", "/data")

with DAG(
    dag_id="rows_to_tfrecord",
    schedule="@daily",
    start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    catchup=False,
    # Two would be refused anyway: of two runs on one target one commits.
    max_active_runs=1,
) as dag:
    convert = BeamRunPythonPipelineOperator(
        task_id="convert",
        py_interpreter=PYTHON,
        py_options=["-m"],
        py_file="beam_pipeline",
        runner="DirectRunner",
        pipeline_options={
            "source": f"{DATA}/rows-{{{{ ds }}}}.csv",
            "output": f"{DATA}/sets/rows",
            "part": "{{ ds }}",
            "splits": "train=0.8,test=0.2",
            "key_column": "number",
            "label_column": "label",
            "max_reject_rate": 0.001,
            # A second run of the day replaces its part, or finds it up to date.
            "overwrite": True,
            "no_shuffle": True,
            "report_json": f"{DATA}/reports/rows-{{{{ ds }}}}.json",
        },
        # The next try goes on where this one ended.
        retries=2,
        retry_delay=datetime.timedelta(minutes=10),
    )
    verify = BashOperator(
        task_id="verify",
        bash_command=(
            f"{PYTHON} -m beam_pipeline verify {DATA}/sets/rows/part={{{{ ds }}}} "
            "--quiet"
        ),
    )
    convert >> verify

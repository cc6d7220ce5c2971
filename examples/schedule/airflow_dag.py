"""Every night: collect the clicks of a server, watch them, train, and ship a better ranker.

For Airflow 3 with the provider `standard`, and untilt on the workers. An alarm of `watch` (exit
code 3) fails its task and holds the release; a verdict other than better (5) skips it.
"""

from datetime import UTC, datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

FOLDER = (
    "/srv/ranker"  # serving-log, documents.parquet, and ranker.untilt that `untilt serve` loads
)

with DAG(
    "ranker",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    collect = BashOperator(
        task_id="collect",
        bash_command="untilt collect serving-log --out clicks --close-after 7",
        cwd=FOLDER,
    )
    watch = BashOperator(
        task_id="watch",
        bash_command="untilt watch clicks --documents documents.parquet --page watch.html",
        cwd=FOLDER,
    )
    # Files of a night in a folder of its own; a task that is tried again continues its run.
    run = BashOperator(
        task_id="run",
        bash_command=(
            "untilt run clicks --documents documents.parquet --out decision-{{ ds_nodash }} "
            "--fail-unless better"
        ),
        cwd=FOLDER,
        skip_on_exit_code=5,
        retries=2,
    )
    # A rename, so that the server never sees half a file.
    ship = BashOperator(
        task_id="ship",
        bash_command=(
            "cp decision-{{ ds_nodash }}/ranker.untilt ranker.new && mv ranker.new ranker.untilt"
        ),
        cwd=FOLDER,
    )
    collect >> [watch, run]
    [watch, run] >> ship

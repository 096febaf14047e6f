"""What a user reads of an error that came through two languages."""

from job.failures import failure_of

OF_A_WORKER = """
  File "x.py", line 3, in <module>
Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times: PythonException:
Traceback (most recent call last):
  File "/srv/job/delivery/transactions.py", line 3, in __call__
    rows = 1 / 0
           ~~^~~
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_error_of_a_python_worker_is_one_line() -> None:
    assert "ZeroDivisionError: division by zero" == str(failure_of(RuntimeError(OF_A_WORKER), "b"))

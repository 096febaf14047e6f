"""Answers questions about the SQL of the specs of a benchmark, in another process."""

from job.installation.jars import jar_folder
from job.sql.questions import SqlQuestions
from job.sql.worker import SqlWorker

SQL = SqlQuestions(SqlWorker(jar_folder("spark")).ask)

"""DataFrame.mapInArrow without the import of pandas, which PySpark makes and does not use here.

Private API of PySpark 4.3.0: see the package docstring. If it has changed, the public method runs.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from job.spark.lost_hooks import report_lost_hook

MapBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(rows: DataFrame, function: MapBatches, ddl: str) -> DataFrame:
    """rows.mapInArrow(function, ddl)."""
    try:
        return _map_in_arrow(rows, function, ddl)
    except Exception as error:
        mapped = rows.mapInArrow(function, ddl)
        report_lost_hook("arrow_map", error)
        return mapped


def _map_in_arrow(rows: DataFrame, function: MapBatches, ddl: str) -> DataFrame:
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    udf = UserDefinedFunction(
        function,
        returnType=ddl,
        name="map",
        evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    )
    column = udf(*(rows[name] for name in rows.columns))
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)

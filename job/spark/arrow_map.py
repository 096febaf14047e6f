"""DataFrame.mapInArrow without pandas, which PySpark imports there and does not use.

Private API of PySpark 4.3.0: see the package docstring. pandas is not installed, so the public
method is not a fallback.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

MapBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(rows: DataFrame, function: MapBatches, ddl: str) -> DataFrame:
    """rows.mapInArrow(function, ddl)."""
    udf = UserDefinedFunction(
        function,
        returnType=ddl,
        name="map",
        evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    )
    column = udf(*(rows[name] for name in rows.columns))
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)

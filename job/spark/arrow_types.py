"""Arrow types of Spark's types.

Private API of PySpark 4.3.0: see the package docstring. The behaviour is tested by
tests/semantics/test_formats.py.
"""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType


def arrow_type(ddl: str) -> pa.DataType:
    """The Arrow type of a struct with the fields of `ddl`."""
    return to_arrow_type(StructType.fromDDL(ddl))

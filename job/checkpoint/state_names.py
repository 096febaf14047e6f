"""Names of columns and fields in the schema of the processor's state.

job/join/StateNames.java writes a character that an Avro name cannot have as its code.
"""

import re

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

_CODE = re.compile("_x([0-9a-f]{4})_")


def decoded(kind: DataType) -> DataType:
    """The type with the names of its fields as the spec has them."""
    if isinstance(kind, StructType):
        fields = (
            StructField(_decoded_name(field.name), decoded(field.dataType), field.nullable)
            for field in kind
        )
        return StructType(list(fields))
    if isinstance(kind, ArrayType):
        return ArrayType(decoded(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(decoded(kind.keyType), decoded(kind.valueType), kind.valueContainsNull)
    return kind


def _decoded_name(name: str) -> str:
    units = _CODE.sub(lambda code: chr(int(code[1], 16)), name)
    # Java's codes are those of UTF-16.
    return units.encode("utf-16", "surrogatepass").decode("utf-16")

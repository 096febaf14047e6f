"""The key of a state lookup, without Spark."""

import pytest
from pyspark.sql.types import LongType, StringType

from job.checkpoint.state_reader import key_value
from job.errors import RequestError


def test_null_of_a_key_that_is_no_text_is_null() -> None:
    assert key_value("null", "ad_id", LongType(), is_value=False) is None
    assert "null" == key_value("null", "user", StringType(), is_value=True)
    assert "7" == key_value("7", "ad_id", LongType(), is_value=True)
    with pytest.raises(RequestError, match=r"ad_id has type BIGINT, and 'x' is not a value"):
        key_value("x", "ad_id", LongType(), is_value=False)

"""Options of the JVMs of a query. Known before the query is planned: its own JVM reads the SQL."""

from collections.abc import Mapping

from job.plan import real_time, tuning
from job.spec.engine import Engine
from job.spec.security import KafkaSecurity


def driver_options(engine: Engine, security: KafkaSecurity | None) -> str:
    """Options of the driver's JVM."""
    conf = {**tuning.CONF, **(real_time.CONF if engine is Engine.REAL_TIME else {})}
    return {**conf, **with_token_endpoint(conf, security)}[tuning.DRIVER_OPTIONS]


def with_token_endpoint(
    conf: Mapping[str, str], security: KafkaSecurity | None
) -> Mapping[str, str]:
    """Kafka's Java client requests tokens only from URLs that a system property allows."""
    if security is None or security.token_endpoint is None:
        return {}
    allowed = f" -Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={security.token_endpoint}"
    names = (tuning.DRIVER_OPTIONS, tuning.EXECUTOR_OPTIONS)
    return {name: conf[name] + allowed for name in names}

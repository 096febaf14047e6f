"""Options of the JVMs of a query. Known before the query is planned: its own JVM reads the SQL."""

from collections.abc import Mapping

from job.plan import real_time, tuning
from job.spec.engine import Engine
from job.spec.security import KafkaSecurity


def driver_options(engine: Engine, security: KafkaSecurity | None) -> str:
    """Options of the driver's JVM."""
    conf = {**tuning.CONF, **(real_time.CONF if engine is Engine.REAL_TIME else {})}
    return {**conf, **with_login(conf, security)}[tuning.DRIVER_OPTIONS]


def with_login(conf: Mapping[str, str], security: KafkaSecurity | None) -> Mapping[str, str]:
    """Kafka's Java client requests tokens only from URLs that a system property allows. For MSK it
    takes the region from the broker's name, or, if the name contains none, from another property.
    """
    if security is not None and security.token_endpoint is not None:
        option = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={security.token_endpoint}"
    elif security is not None and security.region is not None:
        option = f"-Daws.region={security.region}"
    else:
        return {}
    names = (tuning.DRIVER_OPTIONS, tuning.EXECUTOR_OPTIONS)
    return {name: f"{conf[name]} {option}" for name in names}

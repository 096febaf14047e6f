"""What a job has: cores, memory, and disk for its checkpoint."""

import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from job.errors import SetupError
from job.plan.capacity import AvailableResources
from job.plan.plan import JoinPlan
from job.settings import JobSettings

_MEMORY_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def means_of(settings: JobSettings, plan: JoinPlan, *, cores: int) -> AvailableResources:
    """`cores`: of this machine. What executors have elsewhere is not known here."""
    if settings.is_on_cluster:
        return AvailableResources(
            cores=plan.state_partitions, heap_bytes=None, disk_free_bytes=None
        )
    return AvailableResources(
        cores=min(_local_cores(settings.spark_master, cores), plan.state_partitions),
        heap_bytes=_bytes(settings.driver_memory),
        disk_free_bytes=_disk_free(plan.checkpoint),
    )


def _local_cores(master: str, cores: int) -> int:
    told = re.match(r"local\[(\*|\d+)", master)
    if told is None:
        return 1
    return cores if told[1] == "*" else int(told[1])


def _bytes(memory: str) -> int:
    """As the JVM reads -Xmx: 2g, 512m, 1073741824."""
    told = re.fullmatch(r"(\d+)([kmgt]?)", memory.lower())
    if told is None:
        raise SetupError(
            f"STREAMJOIN_DRIVER_MEMORY is {memory!r}: write a number with k, m or g, e.g. 2g"
        )
    return int(told[1]) * _MEMORY_UNITS[told[2]]


def _disk_free(checkpoint: str) -> int | None:
    """Below the nearest folder that is there: the checkpoint may not be yet."""
    address = urlsplit(checkpoint)
    if address.scheme not in {"", "file"}:
        return None
    folder = Path(address.path).absolute()
    try:
        found = next(above for above in (folder, *folder.parents) if above.exists())
        return shutil.disk_usage(found).free
    except OSError:  # who asks for the plan need not be who may look there
        return None

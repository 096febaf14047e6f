"""Cores, memory and disk that a job can use."""

import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from job.errors import SetupError
from job.plan.capacity import AvailableResources
from job.plan.plan import JoinPlan
from job.settings import JobSettings

_MEMORY_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def available_resources(settings: JobSettings, plan: JoinPlan, *, cores: int) -> AvailableResources:
    """`cores`: of this machine. Memory and disk of executors on a cluster are unknown."""
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
    count = re.match(r"local\[(\*|\d+)", master)
    if count is None:
        return 1
    return cores if count[1] == "*" else int(count[1])


def _bytes(memory: str) -> int:
    """Parses the JVM's notation for -Xmx: 2g, 512m, 1073741824."""
    size = re.fullmatch(r"(\d+)([kmgt]?)", memory.lower())
    if size is None:
        raise SetupError(
            f"STREAMJOIN_DRIVER_MEMORY is {memory!r}: write a number with k, m or g, e.g. 2g"
        )
    return int(size[1]) * _MEMORY_UNITS[size[2]]


def _disk_free(checkpoint: str) -> int | None:
    """Free bytes on the disk of the nearest existing parent. None: not on a readable local disk."""
    address = urlsplit(checkpoint)
    if address.scheme not in {"", "file"}:
        return None
    folder = Path(address.path).absolute()
    try:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        return shutil.disk_usage(existing).free
    except OSError:  # `plan` may run as a user without access to the folder
        return None

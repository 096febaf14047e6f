"""Check of the checkpoint's location. Pure: the job checks later whether the folder exists."""

import re

# Hadoop's own clients and those that stores publish. Without this check a misspelt scheme fails
# only at the start, with a Java error.
SCHEMES = frozenset({
    "abfs", "abfss", "adl", "alluxio", "cos", "cosn", "dbfs", "file", "gs", "har", "hdfs", "jfs",
    "maprfs", "o3fs", "obs", "oci", "ofs", "oss", "s3", "s3a", "s3n", "swebhdfs", "swift", "tos",
    "viewfs", "wasb", "wasbs", "webhdfs",
})  # fmt: skip
# Their authority is only the bucket; text before an @ is a key.
_WITHOUT_USER = {"s3", "s3a", "s3n", "gs", "oss", "obs", "cosn"}
# File systems of the kernel, which store no files.
_NO_FILES = ("proc", "sys", "dev")
_REMEDY = (
    "and logs and responses show the location: pass it to Hadoop by its own settings, e.g. "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3a"
)


def checkpoint_location(location: str) -> str:
    """`location`. ValueError if it contains a secret or cannot be a folder.

    abfss://container@account is a location, s3a://key:secret@bucket contains a secret.
    """
    if any(character < " " or character == "\x7f" for character in location):
        raise ValueError("contains a control character, e.g. a line break or a NUL: remove it")
    url = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)", location, re.DOTALL)
    if url is None:
        _refuse_kernel_folders(location)
        return location
    scheme, authority, path = url[1].lower(), url[2], url[3]
    user, at, _ = authority.rpartition("@")
    if ":" in user or (at and scheme in _WITHOUT_USER):
        raise ValueError(f"contains a password or key, {_REMEDY}")
    if "?" in authority + path:
        raise ValueError(f"contains a query (?…), which may be a signature, {_REMEDY}")
    if scheme not in SCHEMES:
        known = ", ".join(sorted(SCHEMES))
        raise ValueError(f"has a scheme that Hadoop does not support: use one of {known}")
    if scheme == "file":
        _refuse_kernel_folders(path)
    return location


def _refuse_kernel_folders(path: str) -> None:
    root = re.match(r"(?:file:)?/+([^/]+)(?:/|$)", path)
    if root is not None and root[1] in _NO_FILES:
        raise ValueError(f"is below /{root[1]}, where no files can be stored: use another folder")

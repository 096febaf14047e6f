"""Which text may name a checkpoint's folder. Pure: whether the folder is there is checked later."""

import re

# Hadoop's own clients and those of stores that publish one. A misspelt scheme fails at the start
# only, with an error of Java.
SCHEMES = frozenset({
    "abfs", "abfss", "adl", "alluxio", "cos", "cosn", "dbfs", "file", "gs", "har", "hdfs", "jfs",
    "maprfs", "o3fs", "obs", "oci", "ofs", "oss", "s3", "s3a", "s3n", "swebhdfs", "swift", "tos",
    "viewfs", "wasb", "wasbs", "webhdfs",
})  # fmt: skip
# Their authority is `bucket` alone; a name before an @ is a key.
_WITHOUT_USER = {"s3", "s3a", "s3n", "gs", "oss", "obs", "cosn"}
# The kernel's, where no files can be written.
_NO_FILES = ("proc", "sys", "dev")
_REMEDY = (
    "and the location is shown in logs and answers: give it to Hadoop by its own settings, e.g. "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3a"
)


def checkpoint_location(location: str) -> str:
    """`location`; ValueError where it holds a secret or cannot be a folder.

    abfss://container@account names a place, s3a://key:secret@bucket holds a secret.
    """
    if any(character < " " or character == "\x7f" for character in location):
        raise ValueError("holds a control character, e.g. a line break or a NUL: leave it out")
    url = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)", location, re.DOTALL)
    if url is None:
        _refuse_kernel_folders(location)
        return location
    scheme, authority, path = url[1].lower(), url[2], url[3]
    user, at, _ = authority.rpartition("@")
    if ":" in user or (at and scheme in _WITHOUT_USER):
        raise ValueError(f"holds a password or key, {_REMEDY}")
    if "?" in authority + path:
        raise ValueError(f"holds a query (?…), which may be a signature, {_REMEDY}")
    if scheme not in SCHEMES:
        known = ", ".join(sorted(SCHEMES))
        raise ValueError(f"has a scheme that is no file system of Hadoop: use one of {known}")
    if scheme == "file":
        _refuse_kernel_folders(path)
    return location


def _refuse_kernel_folders(path: str) -> None:
    found = re.match(r"(?:file:)?/+([^/]+)(?:/|$)", path)
    if found is not None and found[1] in _NO_FILES:
        raise ValueError(f"is below /{found[1]}, where no files can be kept: name another folder")

"""AWS Signature Version 4 of a presigned URL, by its specification and without Amazon's SDK."""

import hmac
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import quote


def signature(host: str, query: Mapping[str, str], secret: str) -> str:
    """`query`: the parameters that are signed, decoded."""
    algorithm, date = query["X-Amz-Algorithm"], query["X-Amz-Date"]
    scope = query["X-Amz-Credential"].split("/", 1)[1]
    parameters = "&".join(
        f"{name}={quote(value, safe='-_.~')}" for name, value in sorted(query.items())
    )
    empty = sha256(b"").hexdigest()
    request = "\n".join(["GET", "/", parameters, f"host:{host}\n", "host", empty])
    text = "\n".join([algorithm, date, scope, sha256(request.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()

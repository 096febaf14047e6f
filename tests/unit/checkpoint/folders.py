"""The documents of a checkpoint, in memory."""

import json
from typing import Any


class DocumentFolder:
    root = "file:/checkpoint"

    def __init__(self, documents: dict[str, Any] | None = None) -> None:
        self.documents: dict[str, Any] = documents or {}

    def text(self, name: str) -> str | None:
        document = self.documents.get(name)
        return None if document is None else json.dumps(document)

    def write(self, name: str, text: str) -> None:
        self.documents[name] = json.loads(text)

    def remove(self, name: str) -> None:
        self.documents.pop(name, None)

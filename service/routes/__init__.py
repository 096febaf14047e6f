"""The calls of the HTTP API. Each sends one request to the job and converts the reply."""

from service.routes.control import control
from service.routes.operations import operations
from service.routes.query import query
from service.routes.state import explanation, state
from service.routes.validate import validation

__all__ = ["control", "explanation", "operations", "query", "state", "validation"]

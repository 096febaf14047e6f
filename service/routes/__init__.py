"""The calls of the HTTP API. Each sends one request to the job and converts the reply."""

from service.routes.control import control
from service.routes.operations import operations
from service.routes.query import query
from service.routes.state import state
from service.routes.validate import validation

__all__ = ["control", "operations", "query", "state", "validation"]

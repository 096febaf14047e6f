"""The calls of the HTTP API. Each asks the job once and puts the answer in the API's terms."""

from service.routes.control import control
from service.routes.look_ups import look_ups
from service.routes.operations import operations
from service.routes.query import query

__all__ = ["control", "look_ups", "operations", "query"]

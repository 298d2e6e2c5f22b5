"""A model's PLAN and IMPLEMENT answers as records; what cannot be used is a `Malformed` value."""

from ptxsearch.reply.implementation import parse_implementation
from ptxsearch.reply.plan import PLAN_SCHEMA, parse_plan
from ptxsearch.reply.text import Malformed

__all__ = ["PLAN_SCHEMA", "Malformed", "parse_implementation", "parse_plan"]

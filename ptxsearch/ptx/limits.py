"""Bounds on what the parser accepts, so that no text costs unbounded time or memory."""

from __future__ import annotations

SOURCE_BYTES = 1 << 20
INSTRUCTIONS = 50_000
FUNCTIONS = 1_000
IDENTIFIER = 4_096
SCOPE_DEPTH = 256
REGISTER_RANGE = 1 << 20
INITIALISED_BYTES = 16 << 20
DIMENSIONS = 16
OBJECT_BYTES = 1 << 62

"""A verdict as text that a proposer can act on."""

from ptxsearch.feedback.compose import MOST_LINES, duration, failure, feedback, shorten

__all__ = ["MOST_LINES", "duration", "failure", "feedback", "shorten"]

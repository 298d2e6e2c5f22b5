"""Waiting for a server: which failures pass, how long to wait, when to give up."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import openai
import tenacity

from ptxsearch.errors import ProviderPaused
from ptxsearch.plural import plural

T = TypeVar("T")
_PASSING = (
    openai.RateLimitError,
    openai.APIConnectionError,
    openai.InternalServerError,
    openai.ConflictError,
    openai.APIResponseValidationError,
    json.JSONDecodeError,
)


@dataclass(frozen=True)
class Patience:
    """How often to try and how long to wait, in seconds.

    Waits double from `first` up to `longest` with jitter; a Retry-After of the server counts
    instead, up to `longest_asked`. `timeout` bounds one request.
    """

    attempts: int = 8
    first: float = 1.0
    longest: float = 60.0
    longest_asked: float = 300.0
    timeout: float = 600.0
    sleep: Callable[[float], None] = time.sleep


def patiently(request: Callable[[], T], patience: Patience) -> T:
    """What `request` returns once the server answers.

    Raises ProviderPaused where it did not within the attempts; other errors pass through.
    """
    backoff = tenacity.wait_random_exponential(multiplier=patience.first, max=patience.longest)

    def wait(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked = retry_after(error)
        if asked is None:
            return float(backoff(state))
        return min(asked, patience.longest_asked)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(passes),
        stop=tenacity.stop_after_attempt(patience.attempts),
        wait=wait,
        sleep=patience.sleep,
        reraise=True,
    )
    try:
        return retrying(request)
    except _PASSING as error:
        if not passes(error):
            raise
        raise ProviderPaused(
            f"the model's server did not answer in {plural(patience.attempts, 'attempt')} "
            f"({say(error)})",
            "run the same command again later; with a store nothing is lost",
        ) from error


def passes(error: BaseException) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, openai.RateLimitError):
        return error.code != "insufficient_quota"
    if isinstance(error, openai.APIStatusError) and error.status_code == 408:
        return True
    return isinstance(error, _PASSING)


def retry_after(error: BaseException | None) -> float | None:
    """The seconds that a server asks to wait, from its headers; None where it does not say."""
    if not isinstance(error, openai.APIStatusError):
        return None
    headers = error.response.headers
    text = headers.get("retry-after-ms")
    try:
        if text is not None:
            return max(0.0, float(text) / 1000)
        text = headers.get("retry-after")
        if text is None:
            return None
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        when = email.utils.parsedate_to_datetime(str(text))
    except ValueError:
        return None
    return max(0.0, when.timestamp() - time.time())


def say(error: BaseException) -> str:
    """An error in one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."

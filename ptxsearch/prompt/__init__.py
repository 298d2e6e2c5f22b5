"""What a model is sent: requests rendered from the templates in `prompts/`."""

from ptxsearch.prompt.render import (
    Brief,
    plan_again,
    prefix,
    render,
    repair,
    template,
    tokens,
    version,
)

__all__ = ["Brief", "plan_again", "prefix", "render", "repair", "template", "tokens", "version"]

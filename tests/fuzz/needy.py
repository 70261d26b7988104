"""A plugin that makes the gateway ask for more than clients did, and take it out again."""

from cases.witness import Editing
from tailrace.proxy.plugin import Needs


class Needy(Editing):
    """Wants usage and token ids of every answer."""

    needs = Needs.USAGE | Needs.TOKEN_IDS

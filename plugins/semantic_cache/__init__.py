"""The plugin `semantic_cache`: the answer that another wording of the same question got."""

from tailrace.plugins.semantic_cache.plugin import SemanticCache
from tailrace.plugins.semantic_cache.settings import Config

__all__ = ["Config", "SemanticCache"]

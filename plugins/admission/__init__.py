"""The plugin `admission`: who gets a place at a pool's workers, and in which order and how long the others wait."""

from tailrace.plugins.admission.plugin import Admission
from tailrace.plugins.admission.settings import Config

__all__ = ["Admission", "Config"]

"""A simulated inference engine: vLLM's wire format without a model, for tests, demos and load tests."""

from tailrace.worker.sim.clock import ManualClock
from tailrace.worker.sim.failures import Fault
from tailrace.worker.sim.server import Sim, serve
from tailrace.worker.sim.settings import Adapter, SimSettings

__all__ = ["Adapter", "Fault", "ManualClock", "Sim", "SimSettings", "serve"]

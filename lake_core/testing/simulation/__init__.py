"""Deterministic simulation: several processes on one store, one operation at a time, in an order set by a seed.

A `History` is data: the actions of each process, and the faults that occur. `run` plays it in virtual time. Its threads
pass one gate at every store operation, so the same history always takes the same course. A `Scenario` carries out the
actions and checks the invariants. `check_history` plays a history. If it fails, the error tells the story of the
smallest part that still fails.
"""

from lake_core.testing.simulation.history import Fault, FaultKind, History, Step, random_faults, shrink
from lake_core.testing.simulation.process import Process, ProcessDied
from lake_core.testing.simulation.run import Result, Scenario, Violation, run
from lake_core.testing.simulation.store import SimulatedStore
from lake_core.testing.simulation.story import HistoryFailed, check_history
from lake_core.testing.simulation.world import SimulationStuck, World

__all__ = [
    "Fault",
    "FaultKind",
    "History",
    "HistoryFailed",
    "Process",
    "ProcessDied",
    "Result",
    "Scenario",
    "SimulatedStore",
    "SimulationStuck",
    "Step",
    "Violation",
    "World",
    "check_history",
    "random_faults",
    "run",
    "shrink",
]

"""Deterministic simulation: several processes on one store, one store operation at a time, in an order that a seed decides.

A `History` is data: what each process does, and which faults meet it. `run` plays it in virtual time on threads that pass one gate at
every store operation, so that the same history always takes the same course. A `Scenario` says how an action is done and what must
hold afterwards. `shrink` finds the smallest part of a failing history that still fails.
"""

from lake_core.testing.simulation.history import Fault, FaultKind, History, Step, random_faults, shrink
from lake_core.testing.simulation.process import Process, ProcessDied
from lake_core.testing.simulation.run import Result, Scenario, Violation, run
from lake_core.testing.simulation.store import SimulatedStore
from lake_core.testing.simulation.world import SimulationStuck, World

__all__ = [
    "Fault",
    "FaultKind",
    "History",
    "Process",
    "ProcessDied",
    "Result",
    "Scenario",
    "SimulatedStore",
    "SimulationStuck",
    "Step",
    "Violation",
    "World",
    "random_faults",
    "run",
    "shrink",
]

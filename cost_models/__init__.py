"""Cost models: the predicted times of ops and copies on machines.

This package knows op signatures and devices, but no graphs. It needs TensorFlow only to measure.

machine = load_machine("h100")
cost = cost_model("analytic").op_cost(signature, machine.device("GPU:0"))
"""

from cost_models.analytic import AnalyticModel
from cost_models.base import CostModel, OpCost, OpSignature, TensorSpec
from cost_models.machine_files import load_machine, shipped_machines
from cost_models.machines import Device, Link, Machine, MachineError, parse_machine
from cost_models.overrides import Override, OverrideModel
from cost_models.registry import UnknownCostModelError, cost_model, cost_models
from cost_models.transfers import copy_costs

__all__ = [
    "AnalyticModel",
    "CostModel",
    "Device",
    "Link",
    "Machine",
    "MachineError",
    "OpCost",
    "OpSignature",
    "Override",
    "OverrideModel",
    "TensorSpec",
    "UnknownCostModelError",
    "copy_costs",
    "cost_model",
    "cost_models",
    "load_machine",
    "parse_machine",
    "shipped_machines",
]

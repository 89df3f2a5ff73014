"""Timing ops and copies on the devices of this process: the only part of cost_models that imports TensorFlow."""

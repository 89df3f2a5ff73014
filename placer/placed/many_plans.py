"""A warning for functions whose calls make many plans, as TensorFlow warns of functions that are traced often."""

from __future__ import annotations

from placer.placed.signatures import Signatures

MANY_PLANS = 6
"""The number of plans at which the warning comes. TensorFlow warns of five traces in ten calls."""


def warn_of_many_plans(signatures: Signatures) -> None:
    """Gives a warning once if calls have made many plans, each for another input signature."""
    made = [signature.text for signature in signatures.known() if not signature.asked_for]
    if len(made) >= MANY_PLANS:
        signatures.warn_once(
            "many plans",
            f"calls of {signatures.name} made {len(made)} plans, one for each input signature, the last two for ({made[-2]}) and "
            f"({made[-1]}). Each takes time. Pass tensors instead of Python values. For tensors of many sizes, place "
            "a tf.function with input_signature=[...] or reduce_retracing=True",
        )

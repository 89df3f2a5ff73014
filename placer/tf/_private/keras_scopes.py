"""Name scopes of Keras layers: one name for each layer, as its variables have it, in every trace.

Keras opens the scope of a layer twice, to build it and to call it, and TensorFlow gives the second one another name:
"dense_1" for "dense". Then no name tells "dense", opened twice, from another layer "dense_1".
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf


def name_ops_by_layer(model: Any) -> None:
    """Lets the ops of each layer of a Keras model have names below "model/layer/", whenever the model is traced."""
    for layer in model._flatten_layers():
        if "_open_name_scope" not in vars(layer) and hasattr(layer, "_open_name_scope"):
            object.__setattr__(layer, "_open_name_scope", partial(_open, layer))


def _open(layer: Any) -> Any:
    scope = type(layer)._open_name_scope(layer)
    if isinstance(getattr(scope, "_tf_name_scope", None), tf.name_scope):
        around = tf.get_current_name_scope()
        # A name that ends in a slash is taken as it is.
        scope._tf_name_scope = tf.name_scope(f"{around}/{layer.name}/" if around else f"{layer.name}/")
    return scope

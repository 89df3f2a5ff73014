"""What makes a placed function a tf.function for TensorFlow and Keras: its type, and the attributes of one."""

from __future__ import annotations

import copy
import functools
import sys
from typing import Any, Self

from placer.common.environment import is_disabled
from placer.placed.signatures import Signatures


class TfFunction:
    """Base of placed functions: has the attributes of a `tf.function`, and is an instance of its class for `isinstance`.

    So `tf.saved_model.save`, Keras's `ExportArchive` and checkpoints take a placed function for one. Public attributes are those
    of the plain function. What is saved is a `tf.function` that calls this function; it has no devices.
    """

    autograph_info__ = None
    """Tells AutoGraph not to convert this class when it is called inside a tf.function."""
    signatures: Signatures
    """The state of each input signature."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """`tf.function`'s class where TensorFlow is loaded: it is the answer to `isinstance`, beside the true type."""
        if "tensorflow" not in sys.modules:
            return type(self)
        from placer.tf._private.functions import PolymorphicFunction

        return PolymorphicFunction

    def __tf_tracing_type__(self, context: Any) -> Any:
        """As an argument of a tf.function it stands for itself, not for the function it wraps."""
        from placer.tf._private.functions import trace_type_by_identity

        return trace_type_by_identity(self)

    @property
    def _traceable(self) -> Any:
        """What `placer.tf.trace.tracing.traceable` takes for a placed function."""
        return self.signatures.traceable

    # -- public attributes -----------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.signatures.name

    @property
    def python_function(self) -> Any:
        """The Python function of the plain function."""
        return self._traceable.python_function

    @property
    def input_signature(self) -> Any:
        """The types of all calls of the plain function; None if each call may have others."""
        from placer.tf.rewrite.exporting import only_types

        return only_types(self._traceable)

    @property
    def function_type(self) -> Any:
        """The parameters of the plain function."""
        return self._traceable.function_type

    @property
    def function_spec(self) -> Any:
        """The parameters of the plain function, as `tf.function` describes them."""
        return self._around.function_spec

    def experimental_get_tracing_count(self) -> int:
        """How often the plain function was traced."""
        return int(self._traceable.experimental_get_tracing_count())

    def pretty_printed_concrete_signatures(self, verbose: bool = True) -> str:
        """The input signatures of the plain function's traces, as text."""
        return str(self._traceable.pretty_printed_concrete_signatures(verbose))

    def experimental_get_compiler_ir(self, *args: Any, **kwargs: Any) -> Any:
        """What XLA makes of the plain function, as for `tf.function`."""
        return self._traceable.experimental_get_compiler_ir(*args, **kwargs)

    # -- what TensorFlow asks of a tf.function ---------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        # Not every attribute: one such as `_tf_decorator` leads from the function around this one back to this one.
        if name != "_jit_compile" and (name[:2] == "__" or name[:1] != "_" or not hasattr(self.__class__, name)):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._around, name)

    @functools.cached_property
    def _around(self) -> Any:
        """A tf.function that calls this one."""
        from placer.tf.rewrite.exporting import calling_function

        return calling_function(self)

    def _to_save(self) -> Any:
        """The tf.function around this one, with the signatures that are known so far."""
        from placer.tf.rewrite.exporting import call_types

        known = [signature.concrete for signature in self.signatures.known()]
        if hasattr(self._traceable, "structured_input_signature"):  # a ConcreteFunction
            known = [self._traceable]
        for concrete in known:
            args, kwargs = call_types(concrete)
            self._around.get_concrete_function(*args, **kwargs)
        return self._around

    def _list_all_concrete_functions(self) -> Any:
        return self._to_save()._list_all_concrete_functions()

    def _list_all_concrete_functions_for_serialization(self) -> Any:
        return self._to_save()._list_all_concrete_functions_for_serialization()

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        return {} if save_type == "checkpoint" else self._to_save()._trackable_children(save_type, **kwargs)

    def _get_concrete_function_garbage_collected(self, *args: Any, **kwargs: Any) -> Any:
        if not args and not kwargs and self._around.input_signature is None:  # of a ConcreteFunction
            return next(iter(self._trackable_children("savedmodel").values()))
        return self._around._get_concrete_function_garbage_collected(*args, **kwargs)

    def _clone(self, python_function: Any) -> Any:
        """What runs all replicas of a distribution strategy. TensorFlow asks for it where a strategy runs this function.

        Args:
            python_function: runs the replicas.
        """
        from placer.placed.strategy.replicated_signatures import signatures_of_threads
        from placer.placed.unplaced import leave_to_strategy

        function = self._traceable._clone(python_function)
        if (of_replicas := signatures_of_threads(self.signatures, function)) is not None:
            return self._with(of_replicas)
        if not is_disabled():
            leave_to_strategy(self.signatures)
        return function

    def _with(self, signatures: Signatures) -> Self:
        """This function with other signatures, of its calls under a distribution strategy."""
        function = copy.copy(self)
        function.signatures = signatures
        return function

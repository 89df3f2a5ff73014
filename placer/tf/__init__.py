"""TensorFlow's two ends: reading a function, and writing and running one. The first import checks TensorFlow's version."""

from placer.tf.version_guard import warn_of_unchecked_version

warn_of_unchecked_version()

"""Private names of TensorFlow that tracing, rewriting and running need: one module for each area of TensorFlow.

The private names of the kernel registry and of the device list are imported where they are used, in `placer.tf.trace.kernels`,
`placer.tf.trace.op_types` and `placer.tf.devices`.
"""

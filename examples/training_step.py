"""Places a training step with a decorator, and prints the plan.

Run it with `python -m examples.training_step`.
"""

import keras
import tensorflow as tf

import placer
from placer import optimized_placement

model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(64, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ]
)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.SGD(0.01)
optimizer.build(model.trainable_variables)


@optimized_placement
def step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights, strict=True))
    return loss


images = tf.random.stateless_normal([128, 28, 28, 1], seed=(0, 1))
labels = tf.random.stateless_uniform([128], seed=(0, 2), maxval=10, dtype=tf.int32)
for _ in range(5):
    loss = step(images, labels)  # the first call traces, plans and rewrites the function
    print(f"loss {loss.numpy():.3f}")

print(step.placement.summary())

# The plan for an H100: a plan contains its graph, which can be planned for another machine.
h100_plan = placer.solve(step.placement.graph, "h100")
print(f"\n{h100_plan.summary()}")
convolution = next(name for name in h100_plan.ops if name.endswith(("/Conv2D", "/convolution")))
print(f"\n{h100_plan.explain(convolution)}")

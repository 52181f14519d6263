"""Worked answer to exercise 27: the last argument waits for the backward pass, the weights do not.

A barrier in front of what is computed again makes its operands wait for each other, and the cotangent is among them.
For `x` that is what one wants: `x` has come out of the layer before, and as long as it waits, the products of `x` are
not those of the forward pass, and XLA cannot merge them. One held argument is enough, since every product has it, or
something made from it, as an operand.

A weight that waits is a weight that nobody can fetch ahead. With `False` in its place it stays out of the barrier. How
many weights there are is known when the function is called.
"""

import jax


def pin_args(f):
    """A checkpoint around a layer, whose barrier holds the layer's last argument alone.

    Args:
      f: a function of one array or several, of which the last is the layer's input.

    Returns:
      A function with the values and gradients of `f` that keeps its arguments and nothing else.
    """

    def layer(*arguments):
        held = (*[False] * (len(arguments) - 1), True)
        return jax.checkpoint(f, prevent_cse=held)(*arguments)

    return layer

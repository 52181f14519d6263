"""Worked answer to exercise 2: ask each operation what it needs to send a gradient back.

An operation's derivative rule multiplies the incoming gradient by something. What is kept is that something, if the
forward pass can compute it ahead:

* sine: the derivative is a cosine. JAX computes it in the forward pass and keeps it, not `x`.
* exp: the derivative is `exp(x)` itself, the output. It is kept, and costs nothing if the output is needed anyway.
* relu: the derivative is 1 or 0. A bool says which, so a mask of one byte an element is kept.
* tanh: the derivative is `1 - tanh(x)**2`. JAX computes it ahead, as for sine. (Its output would have done as well.)
* log: the derivative is `1 / x`, and multiplying by that is dividing by `x`. `x` is there, so it is kept, and nothing
  is computed ahead.
* sigmoid and `x ** 3` are like sine and tanh: the derivative, computed ahead.
* a sum is linear: the gradient goes to both arguments as it is, whatever they were. Nothing is kept.
* a matrix product is linear in each of its arguments, and the derivative with respect to one is the other. Both
  arguments are kept, and nothing that was computed.

Beside the mask JAX leaves an array of zeros behind, for relu. The backward pass does not read it, so it is not asked
for here.
"""

KEPT = {
    "sin": ["cos(x)"],
    "exp": ["exp(x)"],
    "relu": ["x > 0"],
    "tanh": ["1 - tanh(x)**2"],
    "log": ["x"],
    "sigmoid": ["sigmoid(x) * (1 - sigmoid(x))"],
    "cube": ["3 * x**2"],
    "add": [],
    "dot": ["W", "x"],
}


def predict_residuals(op):
    """Names the values that an operation's forward pass keeps and its backward pass reads.

    Args:
      op: `"sin"` or another of the page's operations.

    Returns:
      A list of the page's names.
    """
    return KEPT[op]

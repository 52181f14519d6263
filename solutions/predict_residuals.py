"""Worked answer to exercise 1: what does each derivative rule multiply the incoming gradient by?

An operation's derivative rule multiplies the incoming gradient by a factor. JAX saves this factor. It computes the
factor in the forward pass if it is not available already:

* sin: the derivative is a cosine. JAX computes it in the forward pass and saves it, not `x`.
* exp: the derivative is `exp(x)`, the output. JAX saves the output.
* relu: the derivative is 1 or 0. JAX saves a boolean mask, one byte per element.
* tanh: the derivative is `1 - tanh(x)**2`. JAX computes and saves it, as for sin. (Saving the output would work too.)
* log: the derivative is `1 / x`, and multiplying by it is dividing by `x`. JAX saves `x` and computes nothing.
* sigmoid and `x ** 3`: JAX computes and saves the derivative, as for sin and tanh.
* add is linear: each argument gets the incoming gradient unchanged. JAX saves nothing.
* dot is linear in each argument, and the derivative with respect to one argument is the other. JAX saves both arguments
  and no computed value.

In addition to the mask, JAX saves an array of zeros for relu. The backward pass does not read it, so it does not count
here.
"""

RESIDUALS = {
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
    """Return the names of the values that an operation saves and its backward pass reads.

    Args:
      op: `"sin"` or another of the page's operations.

    Returns:
      A list of the page's names.
    """
    return RESIDUALS[op]

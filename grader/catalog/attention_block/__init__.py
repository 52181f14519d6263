"""Exercise 18: an attention block that saves its projections or its context, by the shape."""

"""Tracing an answer in every case: its forward and its backward program, as evidence that can be judged without it."""

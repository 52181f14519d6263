"""Trace an answer in every case; the evidence, a forward and a backward program, can be judged without its code."""

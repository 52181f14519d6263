import os

# These tests compile many small programs and run each once: compile them fast, not well.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".strip()

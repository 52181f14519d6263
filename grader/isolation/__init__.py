"""Where an answer runs: in this process, in one with limits, in a sandbox."""

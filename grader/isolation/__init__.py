"""Run an answer in this process, in a process with limits, or in a sandbox."""

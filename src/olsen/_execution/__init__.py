"""Where and how work runs: threads, memory."""

"""Where and how work runs: threads, BLAS, memory, arrays of other libraries, callbacks, files."""

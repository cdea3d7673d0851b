"""Our own times from commit to commit: ``pip install asv``, then ``asv run`` and ``asv publish`` in
benchmarks/.
"""

"""All members in one matrix iteration: the solver ``masked_cg`` and what it is made of."""

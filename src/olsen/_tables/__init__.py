"""Tables: what their columns are, and how they become the numbers of a model."""

"""What to fit: risk curves over sizes, laws of inclusion, scale and weights. Sees moments and residuals only."""

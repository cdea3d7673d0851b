"""What to fit: risk curves over sizes, schemes and their shares, scale, weights. Sees moments and residuals only."""

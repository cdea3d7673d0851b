"""What least squares can ask of rows, in forms that merge: moments and a triangular factor."""

"""What happens when the world fails between two of our steps."""

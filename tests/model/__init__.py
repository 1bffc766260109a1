"""Small independent models that predict what the product answers."""

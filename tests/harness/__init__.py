"""What the registry walk is made of: calls from samples, hard variants, comparisons, gradients, docstrings."""

"""Parts of the registry walk: calls, hard variants, comparisons, gradients, docstrings."""

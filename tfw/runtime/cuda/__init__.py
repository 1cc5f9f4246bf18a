"""The CUDA runtime: plans and their compilation. Importing it needs neither a GPU nor Triton."""

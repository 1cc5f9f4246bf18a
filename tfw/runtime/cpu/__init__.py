"""The CPU: NumPy payloads, threads, and the numerics that NumPy itself lacks."""

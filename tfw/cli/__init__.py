"""The `tfw` command."""

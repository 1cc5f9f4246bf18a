"""Where memory lives and work runs."""

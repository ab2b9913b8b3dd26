"""What evaluators of the command line use."""

"""The commands: each reads its arguments, calls the package, and prints the result."""

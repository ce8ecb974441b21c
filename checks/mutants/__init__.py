"""Small faults in a copy of the package, which the tests have to notice. It is not in the package."""

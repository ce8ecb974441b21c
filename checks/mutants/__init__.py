"""Small faults in a copy of the package, one at a time, and whether the fast tests notice. No part of the package."""

"""Checks of the whole, no part of the package: attacks, planted faults, failing machines, parity with a GPU, speed."""

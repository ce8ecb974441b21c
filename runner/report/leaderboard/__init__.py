"""Test accuracy of every paper's methods at the same sound epsilons, of the records."""

"""Networks, their losses, and both as the one function that is differentiated."""

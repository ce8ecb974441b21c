"""Commands in hostile surroundings and with bad input, each tried once, with the answer that it has to give."""

"""From records to verdicts: which runs a claim is about, what is read of them, and what follows."""

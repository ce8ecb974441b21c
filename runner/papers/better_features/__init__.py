"""Differentially Private Learning Needs Better Features (or Much More Data) (Tramèr and Boneh, ICLR 2021)."""

"""A user's code: how it is run, bounded and named.

The threat model is honest code with honest mistakes (`docs/privacy.md`). A user's function gets one example at a time
(`engine`), its contribution is cut to the bound that it states (`parts`), and the package draws the noise and charges
for it (`mechanism`). What remains to be believed is named in the record (`parts`), with hashes of files (`sources`).
"""

"""From a resolved config to the parts of a run, in one walk over its groups, before any data is read.

`groups` checks the target and the arguments of each group once and makes its instance, and `parts` checks single parts.
`prepare` reads from top to bottom: part by part, then what goes together, with the noise or the number of steps that a
given ε decides. `trial` runs a user's code on made-up examples.
"""

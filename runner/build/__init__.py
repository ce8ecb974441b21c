"""From a resolved config to the parts of a run, in one walk over its groups, before any data is read.

`groups` checks the target and the arguments of each group once and makes its instance, `parts` checks single parts, and
`prepare` puts them together and runs a user's code on made-up examples.
"""

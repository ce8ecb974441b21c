"""The same functions in less time. Without them every number stays what it is."""

"""Does a GPU compute what the CPU computes? `python -m checks parity`. It reads `runner`; nothing there reads it."""

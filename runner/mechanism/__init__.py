"""What is released: noise, sensitivity, sampling and what they are charged as, from one object."""

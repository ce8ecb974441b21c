"""An efficient differential privacy deep learning method based on noise screening (Fu, Chen and Ling, 2022)."""

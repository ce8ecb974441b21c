"""DP-SGD Without Clipping: The Lipschitz Neural Network Way (Bethune et al., ICLR 2024).

The paper's text has no accuracies (its plots are images). So the checks cover mostly its bounds, the notebooks of its
library, and the accuracy of its method in this benchmark.
"""

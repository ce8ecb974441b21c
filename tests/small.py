"""Overrides that make the runs of tests small."""

NETWORK = ("architecture.filters=[3,4]", "architecture.units=5")
FEW_STEPS = (*NETWORK, "batch_size=240", "scale.batch_size=240", "epochs=2")
LIPSCHITZ = ("architecture=lipschitz_mlp", "architecture.units=[6]", "activation=group_sort", "features=bounded")

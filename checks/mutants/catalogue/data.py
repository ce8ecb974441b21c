"""Faults in the data for training and for measuring."""

from checks.mutants.groups import LOOP
from checks.mutants.mutant import Mutant, named

_DATASETS = "data/test_datasets.py"

MUTANTS = (
    Mutant(
        "training/loop.py",
        "    test, *aside = run.rule.split(test)\n",
        "    train = Split(torch.cat([test.images, train.images]), torch.cat([test.targets, train.targets]))\n"
        "    test, *aside = run.rule.split(test)\n",
        "test images join the training set",
        LOOP,
    ),
    Mutant(
        "training/loop.py",
        "    test, *aside = run.rule.split(test)\n",
        "    train = Split(*(torch.cat([a[:-9], b[:9]]) for a, b in zip(vars(train).values(), vars(test).values(), "
        "strict=True)))\n    test, *aside = run.rule.split(test)\n",
        "nine test images take the places of nine training images",
        LOOP,
    ),
    Mutant(
        "training/loop.py",
        "self._on_epoch = run, objective, data[1], on_epoch",
        "self._on_epoch = run, objective, data[0], on_epoch",
        "the accuracy is that on the training images",
        LOOP,
    ),
    Mutant(
        "training/loop.py",
        "    if run.config.evaluation == EvaluationSplit.holdout:",
        "    if False:",
        "a search on held-out images is one on test images",
        LOOP,
    ),
    Mutant(
        "data/datasets.py",
        "        Split(train.images[:kept], train.targets[:kept]),",
        "        Split(train.images[-kept:], train.targets[-kept:]),",
        "held-out images are trained on",
        f"{_DATASETS} {LOOP}",
    ),
    Mutant(
        "data/datasets.py",
        "return Split(images[~test], targets[~test]), Split(images[test], targets[test])",
        "return Split(images[~test], targets[~test]), Split(images[~test][:359], targets[~test][:359])",
        "the digits' test images are training images",
        _DATASETS,
    ),
    Mutant(
        "data/datasets.py",
        "return as_split(train, shape), as_split(test, shape)",
        "return as_split(train, shape), as_split(train, shape)",
        "test images are the training images",
        _DATASETS,
    ),
    Mutant(
        "data/originals.py",
        "        if hashlib.sha256(content).hexdigest() != digest:",
        "        if False:",
        "any images pass for the data set that is named",
        _DATASETS,
    ),
    Mutant(
        "data/datasets.py",
        "        if found != (list(self.shape), self.train_examples, self.test_examples):",
        "        if found[0] != list(self.shape):",
        "a training set of another size is charged at the rate of the one that is named",
        _DATASETS,
    ),
    Mutant(
        "data/datasets.py",
        "        return train, test\n\n\n@dataclass(frozen=True)\nclass OwnDataset",
        "        train.targets[train.targets == 3] = 4\n        return train, test\n\n\n@dataclass(frozen=True)\n"
        "class OwnDataset",
        "training labels of one class are others' after the check of the digest",
        _DATASETS,
    ),
    Mutant(
        "data/features.py",
        "hashlib.sha256(images.cpu().contiguous().numpy().data).hexdigest()",
        "len(images)",
        "one data set's features are used for another",
        "data/test_features.py::test_one_example_at_a_time_is_the_same",
    ),
    Mutant(
        "data/features.py",
        "        return (images - mean) / std",
        "        return (images - images.mean()) / std",
        "pixels are centred by a mean over private images, which nothing charges",
        "data/test_features.py",
    ),
    Mutant(
        "training/evaluate.py",
        "        accuracy=100 * hits.mean().item(),",
        "        accuracy=100 * hits[: len(hits) // 2].mean().item(),",
        "half of the test images are counted",
        "training/test_evaluate.py",
    ),
    Mutant(
        "training/evaluate.py",
        "fast.predict(inputs, targets)",
        "fast.predict(inputs / inputs.std(), targets)",
        "test images are scaled by the deviation of their batch",
        "training/test_evaluate.py",
    ),
    Mutant(
        "training/evaluate.py",
        "            predicted.append(logits.argmax(dim=1))",
        "            predicted.append(logits.topk(2).indices.eq(targets[:, None]).any(1) * targets"
        " + logits.topk(2).indices.ne(targets[:, None]).all(1) * logits.argmax(dim=1))",
        "the second guess counts, too",
        "training/test_evaluate.py",
    ),
    Mutant(
        "training/first_batch.py",
        "        if not moved <= most * (1 + _ROUNDING[0] + _ROUNDING[1] * len(norms)):",
        "        if False:",
        "the first batch is not compared with the bounds",
        named("training/test_own.py", "TestFirstBatch"),
    ),
    Mutant(
        "training/own.py",
        "        return torch.where(finite, found, 0.0).renorm(2, 0, self.largest_norm * _LEFT)",
        "        return found",
        "features of a user's own are longer than they state",
        named("training/test_own.py", "test_features_that_state_a_norm_are_cut_to_it"),
    ),
    Mutant(
        "training/checks.py",
        "        if parameter.dtype not in (torch.float32, torch.float64):",
        "        if False:",
        "weights are complex or of half precision, and the noise is not for them",
        named("training/test_own.py", "test_what_no_noise_is_for_is_refused"),
    ),
)

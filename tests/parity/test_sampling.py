"""Among which tokens the next is drawn, and how likely each is: as transformers cuts and scales the scores."""

import numpy as np
import pytest
import torch

from regard.models.generation.sampling import Sampling


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_k", [None, 1, 7, 50, 500])
@pytest.mark.parametrize("top_p", [None, 0.1, 0.7, 0.95, 1.0])
def test_the_shares_of_transformers(transformers, rng, temperature, top_k, top_p):
    from transformers.generation import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    warpers = [TemperatureLogitsWarper(temperature)]
    warpers += [] if top_k is None else [TopKLogitsWarper(top_k)]
    warpers += [] if top_p is None or top_p == 1 else [TopPLogitsWarper(top_p)]
    for _ in range(5):
        logits = rng.normal(0, 3, 200)
        scores = torch.tensor(logits)[None]
        for warper in warpers:
            scores = warper(torch.zeros(1, 1, dtype=torch.long), scores)
        theirs = torch.softmax(scores, -1)[0].numpy()
        tokens, shares = Sampling(temperature, top_k, top_p).probabilities(logits)
        ours = np.zeros(200)
        ours[tokens] = shares / shares.sum()
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)

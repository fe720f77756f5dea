"""A model of transformers with the attention of regard: a step of training, generation, and what its heads attend to.

Tiny, with random weights: nothing is downloaded. Needs ``pip install torch "transformers>=5"``.
"""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import regard
import regard.torch

regard.torch.register()

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2,
    intermediate_size=128, initializer_range=0.2, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
model = AutoModelForCausalLM.from_config(config, attn_implementation="regard")

# A batch of two texts; the first is three tokens shorter.
ids = torch.randint(3, 100, (2, 12))
attention_mask = torch.ones_like(ids)
attention_mask[0, :3] = ids[0, :3] = 0

model.set_attn_implementation("sdpa")
with torch.no_grad():
    expected = model(ids, attention_mask=attention_mask).logits
model.set_attn_implementation("regard")
with torch.no_grad():
    logits = model(ids, attention_mask=attention_mask).logits
difference = (logits - expected)[attention_mask.bool()].abs().max() / expected.abs().max()
print(f"difference from sdpa: {difference:.1e}")

# A few steps of training, through the kernel's gradients.
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
labels = ids.masked_fill(attention_mask == 0, -100)
losses = []
for _ in range(20):
    loss = model(ids, attention_mask=attention_mask, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(f"loss: {losses[0]:.3f} at first, {losses[-1]:.3f} after {len(losses)} steps")

# Generation, with the cache of transformers.
model.eval()
generated = model.generate(ids[:, :6], attention_mask=attention_mask[:, :6], max_new_tokens=6, do_sample=False)
agree = (generated[:, 6:] == ids[:, 6:]).float().mean()
print(f"generated: {tuple(generated.shape)}, {agree:.0%} of the new tokens as learned")

# What a head attends to, recorded while the model runs.
with torch.no_grad(), regard.capture(model) as trace:
    model(ids, attention_mask=attention_mask)
weights = trace["blocks.1.attn.weights"]
print(f"weights of the last layer: {tuple(weights.shape)}, each row sums to {float(weights[1].sum(-1).min()):.3f}")

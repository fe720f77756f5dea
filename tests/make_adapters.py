"""Write the adapters in tests/models/adapters: peft's own, for golden models, and the logits that it computes.

It needs peft, which no session has: run it in an environment of its own with `pip install peft`.
"""

from pathlib import Path

import numpy as np

from regard.formats.safetensors import write_safetensors

FOLDER = Path(__file__).parent / "models"
IDS = [[5, 6, 7, 8, 9, 10]]
CASES = {
    "llama": ("llama/llama3", {
        "target_modules": ["q_proj", "v_proj", "down_proj"], "r": 3, "lora_alpha": 5,
        "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"q_proj": 7, "layers.1.mlp.down_proj": 3},
    }),
    "gpt2": ("gpt2/plain", {
        "target_modules": ["c_attn", "c_proj", "c_fc"], "r": 2, "use_rslora": True, "fan_in_fan_out": True,
    }),
    "phi3": ("phi3/plain", {
        "target_modules": ["qkv_proj", "gate_up_proj"], "r": 2, "bias": "all", "modules_to_save": ["norm"],
    }),
}  # fmt: skip


def main() -> None:
    """Write all of them."""
    import peft
    import torch
    import transformers

    for name, (case, options) in CASES.items():
        torch.manual_seed(1)
        base = transformers.AutoModelForCausalLM.from_pretrained(FOLDER / "golden" / case, dtype=torch.float32)
        model = peft.get_peft_model(base, peft.LoraConfig(**options)).eval()
        for parameter in model.parameters():
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.3)
        folder = FOLDER / "adapters" / name
        model.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor(IDS)).logits.numpy()
        write_safetensors(folder / "expected.safetensors", {"ids": np.array(IDS), "logits": logits})


if __name__ == "__main__":
    main()

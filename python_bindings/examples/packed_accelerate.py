# SPDX-License-Identifier: Apache-2.0
"""Accelerate over packed rows: torchrun --nproc-per-node 2 packed_accelerate.py [DIRECTORY]

The loader gives each rank its own rows of like cost, so `accelerator.prepare` is for the model and the optimizer alone."""
import sys
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from transformers import LlamaConfig, LlamaForCausalLM

import rankstore

OUT = sys.argv[1] if len(sys.argv) > 1 else "packed_accelerate.store"


def main() -> None:
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                             "num_key_value_heads": 2, "attn_implementation": "sdpa"}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=128, max_position_embeddings=512, **shape))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    samples = [{"input_ids": (np.arange(4 + i * 37 % 90) + i) % 128} for i in range(200)]
    with rankstore.build(samples, OUT, length="input_ids") as dataset:
        plan = dataset.plan("pack", capacity=512, pack_window=16, cost=rankstore.transformer_cost(32, 2, vocabulary=128), seed=17)
        loader = dataset.loader(plan, collate=rankstore.Pack("flash"), columns=["input_ids"], device=accelerator.device)
        for epoch in range(2):
            loader.set_epoch(epoch)
            for batch in loader:
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            accelerator.print(f"epoch {epoch}: {len(loader)} steps, loss {loss.item():.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

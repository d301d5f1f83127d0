# SPDX-License-Identifier: Apache-2.0
"""The Trainer of transformers with packed rows: torchrun --nproc-per-node 2 packed_trainer.py [DIRECTORY]

Each batch is one row [1, tokens] of whole documents. The model gets position_ids, cu_seq_lens_q/k and max_length_q/k, which flash
attention reads; with "sdpa", as here, transformers finds the documents by position_ids. No token attends to another document."""
import sys
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import rankstore
import rankstore.hf

OUT = sys.argv[1] if len(sys.argv) > 1 else "packed_trainer.store"


class PackedTrainer(rankstore.hf.TrainerMixin, Trainer):
    pass


def main() -> None:
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                             "num_key_value_heads": 2, "attn_implementation": "sdpa"}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=128, max_position_embeddings=512, **shape))
    samples = [{"input_ids": (np.arange(4 + i * 37 % 90) + i) % 128} for i in range(200)]
    settings = TrainingArguments(OUT + ".out", num_train_epochs=2, learning_rate=0.01, use_cpu=not torch.cuda.is_available(), report_to=[],
                                 disable_tqdm=True, save_strategy="no", logging_strategy="no", remove_unused_columns=False)
    with rankstore.build(samples, OUT, length="input_ids") as dataset:
        trainer = PackedTrainer(model, settings, train_dataset=dataset)
        cost = rankstore.transformer_cost(32, 2, feed_forward=64, key_value=16, vocabulary=128, gated=True)
        trainer.plan = dataset.plan("pack", capacity=512, cost=cost, seed=17)
        trainer.loader_options = {"collate": rankstore.Pack("flash"), "columns": ["input_ids"]}
        done = trainer.train()
    if trainer.is_world_process_zero():
        print(f"{done.global_step} steps of rows {trainer.plan.report()['fill']:.1%} full, loss {done.training_loss:.3f}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""TRL's SFTTrainer with packed rows: torchrun --nproc-per-node 2 packed_trl.py [DIRECTORY]

The plan packs all samples over all ranks, so SFTTrainer neither tokenizes nor packs: skip_prepare_dataset, and the mixin's loader."""
import sys
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

import rankstore
import rankstore.hf

OUT = sys.argv[1] if len(sys.argv) > 1 else "packed_trl.store"


class PackedSFTTrainer(rankstore.hf.TrainerMixin, SFTTrainer):
    pass


def main() -> None:
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                             "num_key_value_heads": 2, "attn_implementation": "sdpa"}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=128, max_position_embeddings=512, **shape))
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(128)}, unk_token="w0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w1")  # yours: saved with checkpoints
    samples = [{"input_ids": (np.arange(4 + i * 37 % 90) + i) % 128} for i in range(200)]
    settings = SFTConfig(OUT + ".out", num_train_epochs=1, learning_rate=0.02, use_cpu=not torch.cuda.is_available(), bf16=False,
                         report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no",
                         dataset_kwargs={"skip_prepare_dataset": True})
    with rankstore.build(samples, OUT, length="input_ids") as dataset:
        plan = dataset.plan("pack", capacity=512, cost=rankstore.transformer_cost(32, 2, vocabulary=128), seed=17)
        stands_for = Dataset.from_dict({"input_ids": [[0]]})  # SFTTrainer looks at its columns alone
        trainer = PackedSFTTrainer(model, settings, train_dataset=stands_for, processing_class=tokenizer)
        trainer.plan, trainer.loader_options = plan, {"collate": rankstore.Pack("flash"), "columns": ["input_ids"]}
        done = trainer.train()
    if trainer.is_world_process_zero():
        print(f"{done.global_step} steps of rows {plan.report()['fill']:.1%} full, loss {done.training_loss:.3f}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""For the Trainer of transformers: TrainerMixin."""
from ._integrations.huggingface import TrainerMixin

__all__ = ["TrainerMixin"]

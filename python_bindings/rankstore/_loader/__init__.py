# SPDX-License-Identifier: Apache-2.0
"""Feeds the batches of a plan to a training loop."""

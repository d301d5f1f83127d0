# SPDX-License-Identifier: Apache-2.0
"""Batches, their layouts, and the limits that a plan sets them."""

# SPDX-License-Identifier: Apache-2.0
"""Columns: their types, their values, and how they are inferred, read and shown."""

# SPDX-License-Identifier: Apache-2.0
"""The ranks of a job, what they agree on, and how they end."""
